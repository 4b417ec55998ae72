"""What is put right at the start and now and then: after crashes, reboots, lost files, and deletions nobody told of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dra_kubeletplugin import Claim
from dra_kubeletplugin.apiserver import CLAIMS, SLICES, ApiServer, NotFoundError
from timeslice_api.kinds import names as kinds

from timeslice_driver.dra import device_names
from timeslice_driver.dra.assignment import Assignment
from timeslice_driver.dra.candidate import NodeView, held_devices, record_of
from timeslice_driver.dra.cdi import CdiFolder, assignment_in, vendor_ids_in
from timeslice_driver.dra.checkpoint import Checkpoint
from timeslice_driver.dra.gpus import GONE, Gpu, numbered, without_driver
from timeslice_driver.dra.records import ClaimRecord, Records
from timeslice_driver.dra.refusals import RefusedError

log = logging.getLogger(__name__)


def begin_boot(checkpoint: Checkpoint, boot: str) -> Records:
    """The records as far as they hold in this boot. Blocks.

    A reboot ends all containers and empties the folders of CDI specs and sockets; the kubelet then has every claim
    prepared again that still has pods. What stays are the numbers of the GPUs.
    """

    def change(records: Records) -> Records:
        if records.boot_id in {"", boot} or not boot:
            return replace(records, boot_id=boot or records.boot_id)
        log.info("the machine was started anew: %d prepared claims are void", len(records.held))
        # A GPU counts as seen in this boot only once a look has found it; one that was taken out is then forgotten.
        gpus = tuple(replace(gpu, minor=-1, fault="") for gpu in records.gpus)
        return replace(records, boot_id=boot, claims={}, gpus=gpus)

    return checkpoint.update(change)


def remember_gpus(checkpoint: Checkpoint, found: Sequence[Gpu] | None, fault: str = "") -> Records:
    """The records with the GPUs as they are now. Blocks.

    Args:
        checkpoint: where they are kept.
        found: what a look has found; None when there could be none.
        fault: then, why.
    """

    def change(records: Records) -> Records:
        if found is None:
            return replace(records, gpus=without_driver(records.gpus, fault))
        needed = {uuid for claim in records.held for uuid in claim.uuids}
        # One that was there in this boot is never taken away: an allocation that nobody has prepared yet may name it.
        seen = {gpu.uuid for gpu in records.gpus if gpu.minor >= 0 or gpu.fault}
        return replace(records, gpus=numbered(found, records.gpus, needed=needed | seen))

    return checkpoint.update(change)


def remove_orphans(cdi: CdiFolder, checkpoint: Checkpoint) -> tuple[str, ...]:
    """UIDs of claims whose CDI specs were left by nobody knows whom, and are gone now. Blocks.

    The specs are listed before the records are read: another instance writes the record first.
    """
    listed = cdi.uids()
    records = checkpoint.read()
    if records.incomplete:
        return ()
    orphans = sorted(listed - {claim.uid for claim in records.held})
    for uid in orphans:
        cdi.remove(uid)
    return tuple(orphans)


async def find_anew(
    api: ApiServer, node_name: str, *, view: NodeView, found: Sequence[Gpu] | None, cdi: CdiFolder
) -> tuple[tuple[Gpu, ...], tuple[ClaimRecord, ...]]:
    """What lost records held: GPUs with their numbers, from the slices, and prepared claims. A new node has neither.

    Args:
        api: the API server.
        node_name: of the node, and of its pool.
        view: of the node.
        found: what a look at the GPUs has found; None when there could be none.
        cdi: where the claims' CDI specs are.

    Raises:
        ApiServerError: it cannot be told.
    """
    numbers = await numbers_as_published(api, node_name)
    known = [Gpu(number, uuid) for uuid, number in numbers.items()]
    gpus = without_driver(known, GONE) if found is None else numbered(found, known, needed=numbers.keys())
    return gpus, await claims_as_allocated(api, node_name, replace(view, gpus=gpus), cdi)


async def numbers_as_published(api: ApiServer, node_name: str) -> dict[str, int]:
    """UUIDs and numbers of GPUs in the slices that the API server has of this node; for lost records.

    Raises:
        ApiServerError: they cannot be read.
    """
    found: dict[str, int] = {}
    slices, _ = await api.list(SLICES, fields=f"spec.driver={kinds.DRIVER},spec.nodeName={node_name}")
    for device in (device for each in slices for device in each["spec"].get("devices") or ()):
        name = device_names.parse(device["name"])
        uuid = (device.get("attributes") or {}).get(kinds.ATTRIBUTE_UUID, {}).get("string")
        if name and uuid:
            found[uuid] = name.number
    return found


async def claims_as_allocated(
    api: ApiServer, node_name: str, view: NodeView, cdi: CdiFolder
) -> tuple[ClaimRecord, ...]:
    """Records of the claims that were prepared here, from what the API server and their CDI specs tell.

    Raises:
        ApiServerError: the claims cannot be read.
    """
    items, _ = await api.list(CLAIMS)
    specs = await asyncio.to_thread(lambda: {uid: cdi.read(uid) for uid in cdi.uids()})
    ours = [claim for raw in items if (claim := Claim.of(raw, driver=kinds.DRIVER)).ref.uid in specs]
    here = [claim for claim in ours if any(share.pool == node_name for share in claim.results)]
    return tuple(record for claim in here if (record := _record(claim, specs[claim.ref.uid], view)))


def _record(claim: Claim, spec: Mapping[str, Any], view: NodeView) -> ClaimRecord | None:
    try:
        record = record_of(claim, Assignment(*assignment_in(spec)), held_devices(claim, view))
    except (RefusedError, LookupError) as error:
        log.error("claim %s was prepared, but cannot be taken over: %s", claim.ref, error, extra=claim.ref.about)
        return None
    return replace(record, state="completed").with_vendor_ids(vendor_ids_in(spec, record))


async def gone_claims(
    api: ApiServer, held: Sequence[ClaimRecord], living: Callable[[Sequence[str]], frozenset[str]]
) -> list[ClaimRecord]:
    """Those whose object is gone, was replaced or is no longer allocated, and whose pods have no process any more.

    Args:
        api: the API server.
        held: claims.
        living: which of these pods (UIDs) have processes on the machine; it blocks.

    Raises:
        ApiServerError: it cannot be told.
    """
    gone = [claim for claim in held if not await _there(api, claim)]
    pods = await asyncio.to_thread(living, [uid for claim in gone for uid in claim.pods])
    for claim in gone:
        if still := sorted(pods.intersection(claim.pods)):
            text = "%s is gone, but its pods still run (%s): it stays prepared"
            log.warning(text, claim, ", ".join(still), extra=claim.about)
    return [claim for claim in gone if not pods.intersection(claim.pods)]


async def _there(api: ApiServer, claim: ClaimRecord) -> bool:
    try:
        raw: Any = await api.get(CLAIMS, claim.name, namespace=claim.namespace)
    except NotFoundError:
        return False
    return bool(raw["metadata"]["uid"] == claim.uid and (raw.get("status") or {}).get("allocation"))
