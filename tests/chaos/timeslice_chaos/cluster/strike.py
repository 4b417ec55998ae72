"""Makes a fault happen on a cluster."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from gpu_emulator.faults import Fault
from installation import DRIVER, NAMESPACE
from kube_cluster.errors import ClusterError

from timeslice_chaos.cluster.deck import ClusterFault
from timeslice_chaos.cluster.links import unplugged, unreachable
from timeslice_chaos.cluster.moments import slow_call, struck
from timeslice_chaos.cluster.targets import Targets
from timeslice_chaos.cluster.world import ClusterWorld

Blow: TypeAlias = Callable[[], object]
_API_SERVER, _LEASE = "kube-apiserver", "timeslice-orchestrator"
_FORCE = ("--grace-period=0", "--force")
_LATER_S = 2.0  # several turns


class ClusterStriker:
    """Strikes with the choices of a seed. `strike` says whether the fault has happened, and returns when its time is
    over; what it broke is for Kubernetes and `ClusterWorld.mend`."""

    def __init__(self, world: ClusterWorld, chance: random.Random) -> None:
        self._world, self._targets = world, Targets(world, chance)

    def strike(self, fault: ClusterFault) -> bool:
        """False when its moment did not come."""
        self._world.log.say("strikes", kind=fault.kind, where=fault.where, node=self._targets.node)
        why = ""
        try:
            done = self._strike(fault)
        except (ClusterError, OSError) as error:  # what another fault did to the cluster is in this one's way
            done, why = False, str(error)
        self._world.log.say("struck" if done else "missed", kind=fault.kind, where=fault.where, why=why)
        return done

    def _strike(self, fault: ClusterFault) -> bool:
        worker = self._world.cluster.nodes[self._targets.node]
        if fault.kind == "gpu":
            return struck(worker, Fault(fault.during, nth=1, **fault.gpu)) is not None
        # Whom to strike takes long to find out, and a call of the GPU does not.
        blow = None if fault.target == "mover" else _WAYS[fault.kind](self, fault)
        if fault.during:
            mover = slow_call(worker, fault.during)
            if mover is None:
                return False
            self._targets.mover = mover
        (blow or _WAYS[fault.kind](self, fault))()
        return True

    # Each finds out what to do, and returns how it is done.

    def _kill(self, fault: ClusterFault) -> Blow:
        return partial(self._world.kill, self._targets.pid(fault.target), fault.target)

    def _stop(self, fault: ClusterFault) -> Blow:
        pid = self._targets.pid(fault.target)

        def blow() -> None:
            self._world.stop(pid, fault.target)
            try:
                time.sleep(fault.seconds)
            finally:
                self._world.go_on(pid)

        return blow

    def _delete(self, fault: ClusterFault) -> Blow:
        return partial(self._world.delete, self._targets.pod(fault.target))

    def _force(self, fault: ClusterFault) -> Blow:
        return partial(self._world.delete, self._targets.pod(fault.target), *_FORCE)

    def _evict(self, fault: ClusterFault) -> Blow:
        return partial(self._world.team.evict, self._targets.pod(fault.target)["metadata"]["name"])

    def _restart(self, fault: ClusterFault) -> Blow:
        worker = self._world.cluster.nodes[self._targets.node]
        restart = worker.restart_kubelet if fault.target == "kubelet" else worker.restart_containerd

        def blow() -> None:
            with self._world.machinery:
                restart()

        return blow

    def _away(self, fault: ClusterFault) -> Blow:
        cluster = self._world.cluster

        def blow() -> None:
            with self._world.machinery:
                cluster.stop(_API_SERVER)
                try:
                    time.sleep(fault.seconds)
                finally:
                    cluster.start(_API_SERVER)

        return blow

    def _power(self, _fault: ClusterFault) -> Blow:
        def blow() -> None:
            with self._world.machinery:
                self._world.cut_power(self._targets.node)

        return blow

    def _lease(self, fault: ClusterFault) -> Blow:
        lease = (f"--namespace={NAMESPACE}", "leases.coordination.k8s.io", _LEASE)
        if fault.how == "deleted":
            return partial(self._world.cluster.kubectl, "delete", *lease)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        patch = json.dumps({"spec": {"holderIdentity": "stranger", "acquireTime": now, "renewTime": now}})
        return partial(self._world.cluster.kubectl, "patch", *lease, "--type=merge", f"--patch={patch}")

    def _status(self, _fault: ClusterFault) -> Blow:
        """As one writes it who has not heard that another one leads; then as one who does not care."""
        world, old = self._world, self._world.raw_group()
        version = old["metadata"]["resourceVersion"]

        def blow() -> None:
            time.sleep(_LATER_S)
            if world.raw_group()["metadata"]["resourceVersion"] == version:
                raise ClusterError("nobody has written to the group meanwhile")
            try:
                world.write_status(old["status"], version=version)
            except ClusterError:
                world.write_status(old["status"])
            else:
                raise AssertionError("a status of an old version was taken by the API server")

        return blow

    def _slices(self, _fault: ClusterFault) -> Blow:
        chosen = f"--field-selector=spec.driver={DRIVER}"
        return partial(self._world.cluster.kubectl, "delete", "resourceslices", chosen)

    def _cut(self, fault: ClusterFault) -> Blow:
        world = self._world
        if fault.target == "machine":
            link = partial(unplugged, world.cluster, self._targets.node)
        else:
            pods = world.installation.orchestrator_pods().values()
            addresses = [pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")]
            link = partial(unreachable, self._targets.pid("node"), addresses)

        def blow() -> None:
            with link():
                time.sleep(fault.seconds)

        return blow


_WAYS: dict[str, Callable[[ClusterStriker, ClusterFault], Blow]] = {
    "kill": ClusterStriker._kill,
    "stop": ClusterStriker._stop,
    "delete": ClusterStriker._delete,
    "force": ClusterStriker._force,
    "evict": ClusterStriker._evict,
    "restart": ClusterStriker._restart,
    "away": ClusterStriker._away,
    "power": ClusterStriker._power,
    "lease": ClusterStriker._lease,
    "status": ClusterStriker._status,
    "slices": ClusterStriker._slices,
    "cut": ClusterStriker._cut,
}
