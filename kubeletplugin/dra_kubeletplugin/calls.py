"""What is done for a call of kubelet, whatever version of the interface it came by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from dra_kubeletplugin.claim_reader import ClaimReader
from dra_kubeletplugin.claims import Claim, ClaimRef
from dra_kubeletplugin.driver import Driver, PreparedDevice, PrepareError
from dra_kubeletplugin.metadata import MetadataFiles
from dra_kubeletplugin.node_lock import NodeLock

log = logging.getLogger(__name__)

T = TypeVar("T")
Prepared: TypeAlias = Mapping[str, "Sequence[PreparedDevice] | PrepareError"]
Unprepared: TypeAlias = Mapping[str, PrepareError | None]

_MARGIN_S = 1.0  # of the caller's deadline, to answer in


class Calls:
    """Between the servers and the driver: claims are read and checked, calls are serialised, answers are complete."""

    def __init__(
        self,
        driver: Driver,
        reader: ClaimReader,
        *,
        lock: NodeLock | None,
        lock_timeout_s: float,
        metadata: MetadataFiles | None,
    ) -> None:
        self._driver = driver
        self._reader = reader
        self._lock = lock
        self._lock_timeout_s = lock_timeout_s
        self._metadata = metadata
        self._running: set[asyncio.Task[Any]] = set()

    async def prepare(self, refs: Sequence[ClaimRef], *, left_s: float | None) -> Prepared:
        """For each of the claims its devices, or what went wrong.

        Args:
            refs: as kubelet named them.
            left_s: until kubelet gives up; None: never.
        """
        found = await self._reader.read(refs)
        claims = [claim for claim in found.values() if isinstance(claim, Claim)]
        failures = {uid: error for uid, error in found.items() if isinstance(error, PrepareError)}
        if not claims:
            return failures
        uids = [claim.ref.uid for claim in claims]
        answer = await self._serialised(lambda: self._prepare(claims), uids, left_s=left_s)
        return failures | {uid: answer.get(uid, _no_answer()) for uid in uids}

    async def unprepare(self, refs: Sequence[ClaimRef], *, left_s: float | None) -> Unprepared:
        """For each of the claims None, or what went wrong. They are not read: they may be gone."""
        if not refs:
            return {}
        uids = [ref.uid for ref in refs]
        answer = await self._serialised(lambda: self._unprepare(refs), uids, left_s=left_s)
        return {uid: answer.get(uid, _no_answer()) for uid in uids}

    async def finish(self, *, timeout_s: float) -> None:
        """Waits for what is still under way though its caller has gone; what takes longer is cancelled."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=timeout_s)
        for task in late:
            log.warning("cancelling %s, which did not end in %g s", task.get_name(), timeout_s)
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _prepare(self, claims: Sequence[Claim]) -> Prepared:
        answer = await self._driver.prepare(claims)
        if self._metadata is None:
            return answer
        asked = {claim.ref.uid: claim for claim in claims}
        return {uid: await self._with_metadata(asked, uid, devices) for uid, devices in answer.items()}

    async def _with_metadata(
        self, asked: Mapping[str, Claim], uid: str, devices: Sequence[PreparedDevice] | PrepareError
    ) -> Sequence[PreparedDevice] | PrepareError:
        if self._metadata is None or isinstance(devices, PrepareError) or uid not in asked:
            return devices
        try:
            return await asyncio.to_thread(self._metadata.write, asked[uid], devices)
        except OSError as error:
            return PrepareError(f"cannot write the files that describe the devices: {error}")

    async def _unprepare(self, refs: Sequence[ClaimRef]) -> Unprepared:
        answer = dict(await self._driver.unprepare(refs))
        if self._metadata is not None:
            for uid in [uid for uid, error in answer.items() if error is None]:
                try:
                    await asyncio.to_thread(self._metadata.remove, uid)
                except OSError as error:
                    answer[uid] = PrepareError(f"cannot remove the files that describe the devices: {error}")
        return answer

    async def _serialised(
        self, call: Callable[[], Awaitable[Mapping[str, T]]], uids: Sequence[str], *, left_s: float | None
    ) -> Mapping[str, T | PrepareError]:
        """The driver's answer to a call that has the node for itself and is not cut off in the middle."""
        limits = [self._lock_timeout_s, *([left_s - _MARGIN_S] if left_s is not None else [])]
        try:
            if self._lock is not None:
                await self._lock.acquire(timeout_s=max(0.0, min(limits)))
        except TimeoutError:
            return dict.fromkeys(uids, PrepareError("another call of this driver has been under way for too long"))
        except OSError as error:
            return dict.fromkeys(uids, PrepareError(f"cannot take the lock of the node: {error}"))
        task = asyncio.create_task(self._to_the_end(call, uids))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _to_the_end(
        self, call: Callable[[], Awaitable[Mapping[str, T]]], uids: Sequence[str]
    ) -> Mapping[str, T | PrepareError]:
        try:
            answer = await call()
        except PrepareError as error:
            return dict.fromkeys(uids, error)
        except Exception as error:  # a driver's defect must reach the pod's events with a text, and kubelet tries again
            log.exception("the driver failed")
            return dict.fromkeys(uids, PrepareError(f"internal error: {error!r}"))
        finally:
            if self._lock is not None:
                self._lock.release()
        for uid in set(answer) - set(uids):
            log.error("the driver answered for claim %s, which it was not asked for", uid, extra={"claim_uid": uid})
        return answer


def _no_answer() -> PrepareError:
    return PrepareError("internal error: the driver gave no answer for this claim")
