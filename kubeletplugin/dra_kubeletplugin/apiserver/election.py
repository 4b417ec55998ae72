"""One leader among several processes, by a Lease of coordination.k8s.io/v1, with a fencing epoch.

The protocol is that of client-go's leader election, so both may meet on one Lease: a holder renews, and who has seen no
renewal for the duration of the lease on its own monotonic clock takes over. No clock is compared with another one's.
Candidates watch the Lease, so they know at once when it is given up, and to the moment when it ends; that they look
at it every `retry_s`, too, is for a watch that is broken without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType

from dra_kubeletplugin.apiserver.api_server import ApiServer
from dra_kubeletplugin.apiserver.errors import AlreadyExistsError, ApiServerError, ConflictError, NotFoundError
from dra_kubeletplugin.apiserver.reflector import Change, Reflector
from dra_kubeletplugin.apiserver.resource import LEASES, Object

log = logging.getLogger(__name__)

_RELEASE_S = 2.0
_EPOCH = re.compile("[0-9]{1,18}")  # less than the numbers of 64 bits that it becomes elsewhere


class NotLeadingError(Exception):
    """What was asked for needs the lead, and this process has it no longer."""


@dataclass(frozen=True)
class Terms:
    """Of an election: whose Lease, and its times in seconds. All candidates must have the same `lease_s`."""

    namespace: str
    name: str
    identity: str
    lease_s: float
    renew_s: float
    retry_s: float
    epoch_annotation: str


class Election:
    """A candidacy for the lead.

    `identity` should name the process for people (its pod); a random part is added, so that no other process, nor this
    one's successor in the same container, can be taken for it. The Lease is made if it is not there.

    A leader that could not renew for `renew_s` stops leading; others take over `lease_s` after the last renewal that
    they saw. The gap between both must cover what the leader may still have under way.
    """

    def __init__(
        self,
        api: ApiServer,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_s: float = 15.0,
        renew_s: float = 10.0,
        retry_s: float = 2.0,
        epoch_annotation: str = "dra-kubeletplugin/epoch",
    ) -> None:
        if not 0 < retry_s < renew_s < lease_s:
            raise ValueError("an election needs retry_s < renew_s < lease_s")
        self.identity = f"{identity}_{uuid.uuid4().hex[:8]}"
        self._api = api
        self._terms = Terms(namespace, name, self.identity, lease_s, renew_s, retry_s, epoch_annotation)
        self._seen = ""  # the newest state of the Lease
        self._over_at = 0.0  # when that is over, unless another one is seen before
        self._given_up = asyncio.Event()

    async def lead(self) -> Leadership:
        """Waits until this process leads; failures of the API server are logged and retried.

        The leadership runs from now on and must be left: use it at once as an async context manager.
        """
        fields = f"metadata.name={self._terms.name}"
        following = Reflector(
            self._api, LEASES, namespace=self._terms.namespace, fields=fields, on_change=self._changed
        )
        watching = asyncio.create_task(following.run(), name=f"watch lease {self._terms.name}")
        try:
            return await self._lead()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _lead(self) -> Leadership:
        while True:
            started = time.monotonic()
            try:
                async with asyncio.timeout(self._terms.renew_s):
                    lease = await self._attempt()
            except (ConflictError, AlreadyExistsError):
                log.debug("lease %s: another candidate was faster", self._terms.name)
            except (ApiServerError, TimeoutError) as error:
                log.warning("lease %s: cannot stand for election: %s", self._terms.name, error or "no answer in time")
            else:
                if lease is not None:
                    return Leadership(self._api, self._terms, lease=lease, since=started)
            await self._pause()

    async def _pause(self) -> None:
        """Until the Lease may be free, or should be looked at all the same."""
        pause_s = self._terms.retry_s * random.uniform(0.8, 1.2)
        left_s = self._over_at - time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(pause_s, left_s) if left_s > 0 else pause_s):
                await self._given_up.wait()
        self._given_up.clear()

    def _changed(self, change: Change) -> None:
        if change.new is None or self._free(change.new):
            self._given_up.set()

    async def _attempt(self) -> Object | None:
        """The Lease, held by this process now; None while somebody else may hold it."""
        try:
            lease = await self._api.get(LEASES, self._terms.name, namespace=self._terms.namespace)
        except NotFoundError:
            return await self._api.create(LEASES, _taken(self._terms, {}))
        if not self._free(lease):
            return None
        return await self._api.replace(LEASES, _taken(self._terms, lease))

    def _free(self, lease: Object) -> bool:
        """Nobody holds it, this process itself does (an answer got lost), or its holder was silent for too long."""
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity", "") in ("", self.identity):
            return True
        state = f"{lease['metadata']['uid']} {lease['metadata']['resourceVersion']}"
        if state != self._seen:
            lasting_s = max(float(spec.get("leaseDurationSeconds") or 0), self._terms.lease_s)
            self._seen, self._over_at = state, time.monotonic() + lasting_s
        return time.monotonic() >= self._over_at


class Leadership:
    """The lead, from `Election.lead` on. An async context manager: leaving it hands the lead over at once.

    It renews itself in the background. `lost` gets the reason as soon as somebody else has the Lease or no renewal has
    succeeded for `renew_s`, also while a request hangs; from then on this process must not act as leader. Before an
    act that must not come from a former leader (a process that was stopped for a while finds out late), ask `held` and
    stamp the act with `epoch`.
    """

    def __init__(self, api: ApiServer, terms: Terms, *, lease: Object, since: float) -> None:
        self._api = api
        self._terms = terms
        self._lease = lease
        self._deadline = since + terms.renew_s
        self._writing = asyncio.Lock()
        self.epoch = _epoch(terms, lease)
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._renewing = asyncio.create_task(self._renew_until_lost(), name=f"renew lease {terms.name}")
        log.info("lease %s: leading as %s in epoch %d", terms.name, terms.identity, self.epoch)

    @property
    def held(self) -> bool:
        """Whether this process leads, by the clock of this very moment."""
        return not self.lost.done() and time.monotonic() < self._deadline

    async def __aenter__(self) -> Leadership:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._renewing.cancel()
        await asyncio.wait([self._renewing])
        await self._release()
        if not self.lost.done():
            self.lost.set_result("released")

    async def raise_epoch(self, above: int) -> int:
        """Makes the epoch greater than `above`, which the caller knows from records that outlived the Lease.

        Returns:
            The epoch, unchanged if it is greater already.

        Raises:
            NotLeadingError: the lead is lost.
            ApiServerError: the API server did not take it; the epoch is as before.
        """
        if self.epoch <= above:
            await self._write(epoch=above + 1)
        return self.epoch

    async def _renew_until_lost(self) -> None:
        try:
            async with asyncio.timeout_at(self._deadline) as limit:
                while True:
                    await asyncio.sleep(self._terms.retry_s)
                    await self._renew()
                    limit.reschedule(self._deadline)
        except TimeoutError:
            self._lose(f"no renewal for {self._terms.renew_s:g} s")
        except NotLeadingError as error:
            self._lose(str(error))
        except Exception as error:  # whatever goes wrong here, nobody may go on leading without renewals
            log.exception("lease %s: the renewal failed", self._terms.name)
            self._lose(f"the renewal failed: {error!r}")

    async def _renew(self) -> None:
        try:
            await self._write()
        except ApiServerError as error:
            left_s = self._deadline - time.monotonic()
            log.warning("lease %s: cannot renew, %.1f s left: %s", self._terms.name, left_s, error)

    async def _write(self, epoch: int = 0) -> None:
        """Writes the Lease as held from now on, after somebody else's write too if that leaves this holder in it."""
        async with self._writing:
            if self.lost.done():
                raise NotLeadingError(f"the lead is lost: {self.lost.result()}")
            started = time.monotonic()
            epoch = max(epoch, self.epoch)  # another one may have raised it since this was asked for
            try:
                lease = await self._api.replace(LEASES, _held(self._terms, self._lease, epoch))
            except (ConflictError, NotFoundError):
                lease = await self._write_again(epoch)
            self._lease, self.epoch = lease, epoch
            self._deadline = started + self._terms.renew_s

    async def _write_again(self, epoch: int) -> Object:
        """The Lease was changed: it is still ours, or somebody else's, or gone and has to be made anew."""
        try:
            lease = await self._api.get(LEASES, self._terms.name, namespace=self._terms.namespace)
        except NotFoundError:
            return await self._api.create(LEASES, _held(self._terms, _unborn(self._lease), epoch))
        holder = (lease.get("spec") or {}).get("holderIdentity", "")
        if holder != self._terms.identity:
            self._lose(f"the lease is held by {holder or 'nobody'}")
            raise NotLeadingError(self.lost.result())
        return await self._api.replace(LEASES, _held(self._terms, lease, epoch))

    def _lose(self, reason: str) -> None:
        if not self.lost.done():
            log.error("lease %s: lost the lead: %s", self._terms.name, reason)
            self.lost.set_result(reason)

    async def _release(self) -> None:
        if self.lost.done():
            return
        try:
            async with asyncio.timeout(_RELEASE_S):
                await self._give_up()
        except (ApiServerError, TimeoutError) as error:
            log.warning("lease %s: not released, others wait for its end: %s", self._terms.name, error)

    async def _give_up(self) -> None:
        try:
            await self._api.replace(LEASES, _free_again(_held(self._terms, self._lease, self.epoch)))
        except ConflictError:  # the renewal that was just cancelled had arrived, or somebody wrote by hand
            lease = await self._api.get(LEASES, self._terms.name, namespace=self._terms.namespace)
            if (lease.get("spec") or {}).get("holderIdentity", "") == self._terms.identity:
                await self._api.replace(LEASES, _free_again(_held(self._terms, lease, self.epoch)))


def _taken(terms: Terms, lease: Object) -> Object:
    """The Lease with a new holder and the next epoch."""
    spec = lease.get("spec") or {}
    now = _now()
    metadata = lease.get("metadata") or {"namespace": terms.namespace, "name": terms.name}
    turn = {
        "metadata": metadata,
        "spec": spec | {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1},
    }
    return _held(terms, turn, _epoch(terms, lease) + 1)


def _held(terms: Terms, lease: Object, epoch: int) -> Object:
    metadata = lease["metadata"]
    annotations = (metadata.get("annotations") or {}) | {terms.epoch_annotation: str(epoch)}
    spec = {
        "holderIdentity": terms.identity,
        "leaseDurationSeconds": max(1, round(terms.lease_s)),
        "renewTime": _now(),
    }
    return {
        "apiVersion": LEASES.api_version,
        "kind": "Lease",
        "metadata": metadata | {"annotations": annotations},
        "spec": lease["spec"] | spec,
    }


def _free_again(lease: Object) -> Object:
    return lease | {"spec": lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}}


def _epoch(terms: Terms, lease: Object) -> int:
    """The greatest number that a leader may have had under this Lease, whether it kept the annotation or not."""
    noted = ((lease.get("metadata") or {}).get("annotations") or {}).get(terms.epoch_annotation, "")
    transitions = int((lease.get("spec") or {}).get("leaseTransitions") or 0)
    return max(int(noted) if _EPOCH.fullmatch(noted) else 0, transitions)


def _unborn(lease: Object) -> Object:
    metadata = {key: value for key, value in lease["metadata"].items() if key not in ("uid", "resourceVersion")}
    return lease | {"metadata": metadata}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
