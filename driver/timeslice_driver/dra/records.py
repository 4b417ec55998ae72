"""What the plugin remembers of claims and GPUs, and its form on disk. Pure.

Readers of other versions are served both ways: a key that this version does not know is kept and written back, one that
is missing has a default. There is no checksum over the content, which would break with every new field.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final, Literal, get_args

from timeslice_api.shapes import json_of, well_typed

from timeslice_driver.claims import PreparedClaim
from timeslice_driver.dra.gpus import Gpu

State = Literal["started", "completed", "unprepared"]
VERSION: Final = 1
_KEYS: Final = frozenset({"version", "bootId", "mode", "gpus", "claims", "incomplete"})

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldDevice:
    """One device of a claim's allocation.

    Attributes:
        request: of the claim, without the part after `/` that names a subrequest.
        share_id: tells shares of one device apart; empty where devices are exclusive.
        uuid: of the GPU behind it.
        host_memory: what the claim may take in host memory for its snapshot of that GPU (bytes).
        vendor_id: NVIDIA's CDI id of that GPU, as the kubelet was told; empty: our spec has the device files.
    """

    request: str
    pool: str
    device: str
    uuid: str
    share_id: str = ""
    host_memory: int = 0
    vendor_id: str = ""


@dataclass(frozen=True)
class ClaimRecord:
    """A claim.

    Attributes:
        state: `started` while it is being prepared; `completed`; `unprepared` for a while after, to know late calls.
        pods: names by UID of those that it was prepared for.
        shared: further pods may come to have it.
        changed_at: when it got into its state (Unix time, seconds).
        extra: keys of another version.
    """

    uid: str
    namespace: str
    name: str
    state: State
    job: str
    group: str
    devices: tuple[HeldDevice, ...]
    pods: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False
    changed_at: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uuids(self) -> tuple[str, ...]:
        """Its GPUs, each once."""
        return tuple(dict.fromkeys(device.uuid for device in self.devices))

    @property
    def host_memory(self) -> int:
        """For all its snapshots together (bytes)."""
        return sum(device.host_memory for device in self.devices)

    @property
    def prepared(self) -> PreparedClaim:
        """As the node's other half takes it."""
        return PreparedClaim(
            self.uid, self.namespace, self.name, self.job, self.group, self.uuids, dict(self.pods), self.host_memory
        )

    @property
    def about(self) -> dict[str, str]:
        """Fields of a line of the log about it (`extra`)."""
        return self.prepared.about

    def with_vendor_ids(self, ids: Mapping[str, str]) -> ClaimRecord:
        """With NVIDIA's CDI ids by UUID, as they are now."""
        devices = tuple(replace(device, vendor_id=ids.get(device.uuid, "")) for device in self.devices)
        return replace(self, devices=devices)

    def same_allocation(self, devices: tuple[HeldDevice, ...]) -> bool:
        """Whether these are the shares that it was prepared with."""
        return {_share(device) for device in self.devices} == {_share(device) for device in devices}

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


def _share(device: HeldDevice) -> tuple[str, ...]:
    return device.request, device.pool, device.device, device.share_id


@dataclass(frozen=True)
class Records:
    """All of it.

    Attributes:
        boot_id: of the boot in which the claims were prepared; empty before the first start.
        mode: `lanes` or `slots`, as last published; empty before.
        gpus: with the numbers in their devices' names.
        claims: by UID.
        incomplete: the file was lost or spoilt, and what it held has not been found elsewhere yet.
        extra: keys of another version, and claims that could not be read.
    """

    boot_id: str = ""
    mode: str = ""
    gpus: tuple[Gpu, ...] = ()
    claims: Mapping[str, ClaimRecord] = field(default_factory=dict)
    incomplete: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def held(self) -> tuple[ClaimRecord, ...]:
        """Claims whose pods may be on their GPUs."""
        return tuple(claim for claim in self.claims.values() if claim.state != "unprepared")

    @cached_property
    def completed(self) -> tuple[ClaimRecord, ...]:
        """Claims that are prepared."""
        return tuple(claim for claim in self.claims.values() if claim.state == "completed")

    def with_claim(self, claim: ClaimRecord) -> Records:
        """With that claim, instead of an earlier record of it."""
        return replace(self, claims={**self.claims, claim.uid: claim})

    def without_claims(self, *uids: str) -> Records:
        """Without any trace of them."""
        return replace(self, claims={uid: claim for uid, claim in self.claims.items() if uid not in uids})


class Encoder:
    """Makes the file's bytes. It remembers the text of each claim, as of many claims one at a time becomes another."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[ClaimRecord, str]] = {}
        self._gpus: tuple[tuple[Gpu, ...], list[dict[str, Any]]] = ((), [])

    def encode(self, records: Records) -> bytes:
        """As the file has it."""
        if self._gpus[0] is not records.gpus:
            self._gpus = records.gpus, [asdict(gpu) for gpu in records.gpus]
        content = {
            **records.extra,
            "version": VERSION,
            "bootId": records.boot_id,
            "mode": records.mode,
            "incomplete": records.incomplete,
            "gpus": self._gpus[1],
        }
        self._texts = {uid: (claim, self._text(uid, claim)) for uid, claim in records.claims.items()}
        claims = ", ".join(text for _, text in self._texts.values())
        return f'{json.dumps(content)[:-1]}, "claims": {{{claims}}}}}\n'.encode()

    def _text(self, uid: str, claim: ClaimRecord) -> str:
        known, text = self._texts.get(uid, (None, ""))
        return text if known is claim else f"{json.dumps(uid)}: {json.dumps(_from_claim(claim))}"


def encode(records: Records) -> bytes:
    """As the file has it."""
    return Encoder().encode(records)


def decode(data: bytes) -> Records:
    """The records in a file's bytes. A claim that cannot be read is set aside among the extra keys, and logged.

    Raises:
        ValueError: they are none at all; the message says what is wrong.
    """
    try:
        content = json_of(data)
        claims, unreadable = _to_claims(content.get("claims", {}))
        extra = {key: value for key, value in content.items() if key not in _KEYS}
        if unreadable:
            extra["unreadableClaims"] = extra.get("unreadableClaims", {}) | unreadable
        return Records(
            boot_id=str(content.get("bootId", "")),
            mode=str(content.get("mode", "")),
            gpus=tuple(well_typed(Gpu(**_known(Gpu, gpu))) for gpu in content.get("gpus", [])),
            claims=claims,
            incomplete=bool(content.get("incomplete", False)),
            extra=extra,
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it lacks or misplaces {error}") from error


def _to_claims(content: Mapping[str, Any]) -> tuple[dict[str, ClaimRecord], dict[str, Any]]:
    claims, unreadable = {}, {}
    for uid, raw in content.items():
        try:
            claims[uid] = _to_claim(uid, raw)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.error(
                "the record of claim %s cannot be read: it lacks or misplaces %s", uid, error, extra={"claim_uid": uid}
            )
            unreadable[uid] = raw
    return claims, unreadable


def _from_claim(claim: ClaimRecord) -> dict[str, Any]:
    written = asdict(replace(claim, extra={}))
    del written["extra"], written["uid"]
    return {**claim.extra, **written}


def _to_claim(uid: str, content: Mapping[str, Any]) -> ClaimRecord:
    known = _known(ClaimRecord, content)
    if known["state"] not in get_args(
        State
    ):  # of a later version: it is held, and is prepared anew when it is asked for
        known["state"] = "started"
    devices = tuple(HeldDevice(**_known(HeldDevice, device)) for device in known.pop("devices"))
    extra = {key: value for key, value in content.items() if key not in {*known, "devices"}}
    return well_typed(ClaimRecord(uid=uid, devices=devices, extra=extra, **known))


def _known(kind: type[Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """The content's keys that are fields of the kind; a claim's UID is the key of its record."""
    names = {each.name for each in fields(kind)} - {"extra"} - ({"uid"} if kind is ClaimRecord else set())
    return {key: value for key, value in content.items() if key in names}
