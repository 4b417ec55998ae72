"""What `helm uninstall` runs first: refuses while claims are allocated; else ends the daemons in order, and leaves
nothing behind that would hinder the next installation.

Every step may be repeated, so a run that was cut off is simply run again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dra_kubeletplugin.apiserver import (
    CLAIMS,
    PODS,
    SLICES,
    ApiServer,
    ApiServerError,
    ConflictError,
    NotFoundError,
    Reflector,
    Resource,
)
from timeslice_api.errors import OperationFailed, TimesliceError, Unavailable
from timeslice_api.kinds import names
from timeslice_api.tasks import cancelled

DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
GROUPS: Final = Resource(names.API_GROUP, names.VERSION, names.PLURAL_GROUP, namespaced=False)

_SHOWN = 5  # claims that are named in the refusal
_TRIES = 5  # of taking the finalizer off a group that somebody else writes


@dataclass(frozen=True)
class Installation:
    """What to end. `pods` is a label selector of the daemons' pods."""

    namespace: str
    daemon_set: str
    deployment: str
    pods: str


async def uninstall(api: ApiServer, installation: Installation, *, timeout_s: float) -> None:
    """Ends the daemons, then removes the slices and takes the finalizer off the groups.

    Raises:
        OperationFailed: claims are allocated; nothing was changed.
        Unavailable: the daemons' pods have not gone in `timeout_s` seconds.
        ApiServerError: the API server refused something.
    """
    if claims := await _allocated(api):
        more = f" and {len(claims) - _SHOWN} more" if len(claims) > _SHOWN else ""
        raise OperationFailed(
            f"claims still have GPUs of {names.DRIVER}: {', '.join(claims[:_SHOWN])}{more}",
            reason="ClaimsAllocated",
            hint="end their pods first, or uninstall with --no-hooks and clean up by hand",
        )
    for resource, name in (
        (DAEMON_SETS, installation.daemon_set),
        (DEPLOYMENTS, installation.deployment),
    ):
        await _delete(api, resource, name, namespace=installation.namespace)
    # While a plugin runs it puts its slices back, and the orchestrator its finalizer.
    await _gone(api, installation, timeout_s)
    for published in (await api.list(SLICES, fields=f"spec.driver={names.DRIVER}"))[0]:
        await _delete(api, SLICES, published["metadata"]["name"])
    for group in (await api.list(GROUPS))[0]:
        await _release(api, group)


async def _allocated(api: ApiServer) -> list[str]:
    claims, _ = await api.list(CLAIMS)
    return [f"{claim['metadata']['namespace']}/{claim['metadata']['name']}" for claim in claims if _is_ours(claim)]


def _is_ours(claim: Mapping[str, Any]) -> bool:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or []
    return any(result["driver"] == names.DRIVER for result in results)


async def _delete(api: ApiServer, resource: Resource, name: str, *, namespace: str = "") -> None:
    try:
        await api.delete(resource, name, namespace=namespace)
    except NotFoundError:
        return
    print(f"deleted {resource.plural}/{name}", flush=True)


async def _gone(api: ApiServer, installation: Installation, timeout_s: float) -> None:
    """Returns when no pod of the daemons is left."""
    changed = asyncio.Event()
    pods = Reflector(
        api,
        PODS,
        namespace=installation.namespace,
        labels=installation.pods,
        on_change=lambda _: changed.set(),
    )
    watching = asyncio.create_task(pods.run())
    try:
        async with asyncio.timeout(timeout_s):
            await pods.synced.wait()
            while pods.objects:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        left = sorted(pod["metadata"]["name"] for pod in pods.objects.values())
        raise Unavailable(
            f"after {timeout_s:g} s these pods are still there: {', '.join(left) or 'not known'}"
        ) from None
    finally:
        await cancelled(watching)


async def _release(api: ApiServer, group: dict[str, Any]) -> None:
    """Takes our finalizer off, so that the group can be deleted without an orchestrator."""
    name = group["metadata"]["name"]
    for _ in range(_TRIES):
        metadata = group["metadata"]
        others = [each for each in metadata.get("finalizers") or [] if each != names.FINALIZER]
        if others == (metadata.get("finalizers") or []):
            return
        change = {"metadata": {"finalizers": others, "resourceVersion": metadata["resourceVersion"]}}
        try:
            await api.patch(GROUPS, name, change)
        except NotFoundError:
            return
        except ConflictError:
            group = await api.get(GROUPS, name)
        else:
            print(f"released {GROUPS.plural}/{name}", flush=True)
            return
    raise Unavailable(f"somebody else keeps writing group {name}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 done, 1 refused or failed, with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="python3 -m timeslice_driver.uninstall", description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--daemon-set", required=True)
    parser.add_argument("--deployment", required=True)
    parser.add_argument("--pods", required=True, help="label selector of the daemons' pods")
    parser.add_argument("--timeout", type=float, default=200.0, help="seconds, for the daemons to end")
    parser.add_argument("--kubeconfig", help="default: the pod's own account")
    given = parser.parse_args(arguments)
    installation = Installation(given.namespace, given.daemon_set, given.deployment, given.pods)
    try:
        asyncio.run(_run(installation, given.kubeconfig, given.timeout))
    except (TimesliceError, ApiServerError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _run(installation: Installation, kubeconfig: str | None, timeout_s: float) -> None:
    async with await ApiServer.connect(kubeconfig=kubeconfig) as api:
        await uninstall(api, installation, timeout_s=timeout_s)


if __name__ == "__main__":
    sys.exit(main())
