"""Claims prepared and unprepared on this node: a state machine on disk, safe under SIGKILL at every step.

    (none) --started--> parts --> CDI spec --completed--> (kubelet has the answer)
    completed --> CDI spec gone --> parts gone --unprepared--> forgotten after a while

Whatever a crash leaves is found by the claim's record, which is written first and goes last. A repeated prepare of a
completed claim gives the same devices; of a started one undoes and does it again. Steps may be repeated all of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dra_kubeletplugin import Claim, PreparedDevice
from timeslice_api.errors import InvalidRequest, TimesliceError
from timeslice_api.names import path_part

from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.dra import refusals
from timeslice_driver.dra.candidate import NodeView, candidate, held_devices
from timeslice_driver.dra.cdi import CdiFolder, Wiring, device_ids, spec
from timeslice_driver.dra.checkpoint import Checkpoint, CheckpointError
from timeslice_driver.dra.device_files import device_files, missing
from timeslice_driver.dra.gpus import Gpu
from timeslice_driver.dra.records import ClaimRecord, Records
from timeslice_driver.dra.vendor_cdi import VendorCdi

log = logging.getLogger(__name__)

TOMBSTONE_S: Final = 600.0  # a kubelet gives a call up after 45 s; none comes later than that


@dataclass(frozen=True)
class Files:
    """Where things are on the node: records, our CDI specs, NVIDIA's, and device files."""

    checkpoint: Checkpoint
    cdi: CdiFolder
    vendor: VendorCdi
    dev_root: Path


class Preparation:
    """Prepares and unprepares, one claim at a time.

    Args:
        files: where things are.
        parts: the node's other half.
        wiring: of the containers.
        view: of the node, now.
        steps: told the name of each step when it is done; a test ends the process there.
        clock: Unix time.
    """

    def __init__(
        self,
        files: Files,
        parts: ClaimParts,
        wiring: Wiring,
        *,
        view: Callable[[], NodeView],
        steps: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._files = files
        self._parts = parts
        self._wiring = wiring
        self._view = view
        self._done = steps
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def prepare(self, claim: Claim) -> tuple[PreparedDevice, ...]:
        """The devices for the kubelet; the same ones each time.

        Args:
            claim: as the API server has it now, with its pods.

        Raises:
            RefusedError: it is not prepared, and everything is as before.
        """
        _check_uid(claim.ref.uid)
        async with self._one_at_a_time:
            try:
                record = await self._prepare(claim)
                log.info("%s is prepared: %s", record, ", ".join(e.device for e in record.devices), extra=record.about)
                return _answer(record)
            except (CheckpointError, OSError) as error:
                raise refusals.node_fault(str(error), "look at the node's disk") from error

    async def unprepare(self, uid: str) -> bool:
        """The claim's pods are gone: nothing of it is left. False when it was not known, which is fine.

        Raises:
            RefusedError: the disk fails; to be repeated.
        """
        _check_uid(uid)
        async with self._one_at_a_time:
            try:
                return await self._unprepare(uid)
            except (CheckpointError, OSError) as error:
                raise refusals.node_fault(str(error), "look at the node's disk") from error

    async def refresh_pods(self, uid: str, pods: Mapping[str, str]) -> None:
        """Other pods have the claim now (names by UID). One that is not prepared is passed over.

        Raises:
            CheckpointError: the disk fails.
        """
        async with self._one_at_a_time:
            known = await asyncio.to_thread(self._known, uid)
            if known and known.state == "completed" and dict(known.pods) != dict(pods):
                await asyncio.to_thread(self._write, replace(known, pods=dict(pods)))
                await self._parts.refresh_pods(uid, pods)

    async def restore(self, records: Records) -> None:
        """Has everything that is completed in place again: parts first, then CDI specs. What cannot be is logged."""
        async with self._one_at_a_time:
            for claim in records.completed:
                try:
                    await self._parts.add(claim.prepared)
                    await asyncio.to_thread(self._write_spec, claim)
                except (TimesliceError, OSError, refusals.RefusedError) as error:
                    log.error("%s is prepared, but cannot be put in place: %s", claim, error, extra=claim.about)

    async def _prepare(self, claim: Claim) -> ClaimRecord:
        records, vendor_ids = await asyncio.to_thread(lambda: (self._files.checkpoint.read(), self._files.vendor.ids()))
        known = records.claims.get(claim.ref.uid)
        if known and known.state == "completed" and known.same_allocation(held_devices(claim, self._view())):
            return await self._again(known, claim, vendor_ids)
        if known and known.state == "unprepared":
            self._check_not_stale(known, claim)
        elif known:
            text = "%s was %s with another allocation or not to its end: it is undone first"
            log.info(text, known, known.state, extra=known.about)
            await self._undo(known.uid)
        others = [other for other in records.held if other.uid != claim.ref.uid]
        record = candidate(claim, self._view(), others).with_vendor_ids(vendor_ids)
        await self._do(record)
        return replace(record, state="completed")

    def _check_not_stale(self, known: ClaimRecord, claim: Claim) -> None:
        """A claim may come back to the node, with another pod; the pods it was unprepared for do not."""
        age = self._clock() - known.changed_at
        if age < TOMBSTONE_S and {pod.uid for pod in claim.pods} <= set(known.pods):
            raise refusals.stale(age)

    async def _again(self, known: ClaimRecord, claim: Claim, vendor_ids: Mapping[str, str]) -> ClaimRecord:
        """What is prepared stays so, whatever prepare would say of it today."""
        pods = {**known.pods, **{pod.uid: pod.name for pod in claim.pods}}
        record = replace(known, pods=pods).with_vendor_ids(vendor_ids)
        if record != known:
            await asyncio.to_thread(self._write, record)
        await self._parts.add(record.prepared)
        await asyncio.to_thread(self._write_spec, record)
        return record

    async def _do(self, record: ClaimRecord) -> None:
        try:
            await asyncio.to_thread(self._begin, record)
            await self._parts.add(record.prepared)
            self._done("parts")
            await asyncio.to_thread(self._complete, record)
        except (CheckpointError, OSError, TimesliceError, refusals.RefusedError) as error:
            await self._undo_logged(record)
            if isinstance(error, TimesliceError):
                raise refusals.node_fault(error.message, error.hint) from error
            raise

    def _begin(self, record: ClaimRecord) -> None:
        """Blocks, as all that follow here and are no coroutines."""
        self._write(record, durable=False)  # a reboot makes it void, and nothing else needs the disk
        self._done("started")

    def _complete(self, record: ClaimRecord) -> None:
        self._write_spec(record)
        self._done("cdi")
        self._write(replace(record, state="completed"))
        self._done("completed")

    async def _undo_logged(self, record: ClaimRecord) -> None:
        try:
            await self._undo(record.uid)
        except (CheckpointError, OSError) as error:
            text = "%s: what was begun is undone when it is prepared again: %s"
            log.error(text, record, error, extra=record.about)

    async def _undo(self, uid: str) -> None:
        await asyncio.to_thread(self._files.cdi.remove, uid)
        await self._parts.remove(uid)
        await asyncio.to_thread(self._files.checkpoint.update, lambda records: records.without_claims(uid))

    async def _unprepare(self, uid: str) -> bool:
        await asyncio.to_thread(self._remove_spec, uid)
        await self._parts.remove(uid)
        self._done("parts removed")
        known = await asyncio.to_thread(self._end, uid)
        if known is None or known.state == "unprepared":
            return False
        log.info("%s is unprepared", known, extra=known.about)
        return True

    def _remove_spec(self, uid: str) -> None:
        self._files.cdi.remove(uid)
        self._done("cdi removed")

    def _end(self, uid: str) -> ClaimRecord | None:
        """Returns what was known of it."""
        if known := self._known(uid):
            self._write(replace(known, state="unprepared"), durable=False)
            self._done("unprepared")
        return known

    def _known(self, uid: str) -> ClaimRecord | None:
        return self._files.checkpoint.read().claims.get(uid)

    def _write(self, record: ClaimRecord, *, durable: bool = True) -> None:
        now = self._clock()

        def change(records: Records) -> Records:
            old = [each.uid for each in records.claims.values() if _forgotten(each, now)]
            return records.without_claims(*old).with_claim(replace(record, changed_at=now))

        self._files.checkpoint.update(change, durable=durable)

    def _write_spec(self, record: ClaimRecord) -> None:
        """Device files are looked at anew each time: their numbers may have changed since the last boot."""
        gpus = {gpu.uuid: gpu for gpu in self._view().gpus}
        ours = {device.uuid for device in record.devices if not device.vendor_id}
        nodes = {uuid: self._device_files(uuid, gpus.get(uuid)) for uuid in ours}
        self._files.cdi.write(record.uid, spec(record, self._wiring, nodes))

    def _device_files(self, uuid: str, gpu: Gpu | None) -> tuple[Path, ...]:
        if gpu is None or gpu.minor < 0:
            raise refusals.node_fault(f"{uuid} is not there now", "it is tried again when the driver answers")
        files = device_files(self._files.dev_root, gpu.minor)
        if absent := missing(files):
            mend = "run `nvidia-modprobe -u -c 0` or `nvidia-smi` on the node"
            raise refusals.unhealthy(gpu, f"there is no {', '.join(map(str, absent))}", mend)
        return files


def _answer(record: ClaimRecord) -> tuple[PreparedDevice, ...]:
    return tuple(
        PreparedDevice(each.pool, each.device, (each.request,), device_ids(record, each), each.share_id)
        for each in record.devices
    )


def _forgotten(record: ClaimRecord, now: float) -> bool:
    return record.state == "unprepared" and now - record.changed_at > TOMBSTONE_S


def _check_uid(uid: str) -> None:
    """Files and folders are called by it."""
    try:
        path_part(uid, "the claim's UID")
    except InvalidRequest as error:
        raise refusals.node_fault(error.message, "look at who calls the plugin's socket") from error
