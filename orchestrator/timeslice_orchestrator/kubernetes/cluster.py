"""What is watched, in the small form in which it is used here."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from dra_kubeletplugin.apiserver import (
    CLAIMS,
    DEVICE_CLASSES,
    PODS,
    SLICES,
    ApiServer,
    Change,
    Object,
    Reflector,
    Resource,
)
from timeslice_api.kinds.names import API_GROUP, DRIVER, PLURAL_GROUP, VERSION

from timeslice_orchestrator.kubernetes.claims import Claim, claim_of, kept_of_claim
from timeslice_orchestrator.kubernetes.groups import Groups, kept_of_group
from timeslice_orchestrator.kubernetes.lanes import Slice, current, slice_of
from timeslice_orchestrator.kubernetes.occupancy import Occupancy
from timeslice_orchestrator.kubernetes.pods import Pod, kept_of_pod, pod_of

_log = logging.getLogger(__name__)

GROUPS = Resource(API_GROUP, VERSION, PLURAL_GROUP, namespaced=False)
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"

_Seen = TypeVar("_Seen")


class _Copies(Generic[_Seen]):
    """The small forms of a reflector's objects, by UID."""

    def __init__(
        self, form: Callable[[Object], _Seen | None], changed: Callable[[_Seen | None, _Seen | None], None]
    ) -> None:
        self._form = form
        self._changed = changed
        self.all: dict[str, _Seen] = {}

    def take(self, change: Change) -> None:
        """Follows the reflector; tells of what concerns us, and only if the small form differs."""
        uid = (change.new or change.old or {})["metadata"]["uid"]
        old, new = self.all.get(uid), self._form(change.new) if change.new else None
        if new is None:
            self.all.pop(uid, None)
        else:
            self.all[uid] = new
        if old != new:
            self._changed(old, new)


class Cluster:
    """Copies of groups, their classes, claims, pods with claims, and slices.

    Args:
        api: the API server.
        on_groups: called after a group, its class, or our part of its status changed; True when it is more than status.
        on_claims: called after a claim changed, was added or went; with what it was.
        on_change: called after anything else changed that a person may wait for.
    """

    def __init__(
        self,
        api: ApiServer,
        *,
        on_groups: Callable[[bool], None],
        on_claims: Callable[[Claim | None, Claim | None], None],
        on_pods: Callable[[Pod | None, Pod | None], None],
        on_slices: Callable[[], None],
    ) -> None:
        self.groups = Groups()
        self._on_groups = on_groups
        self._on_slices = on_slices
        self._claims: _Copies[Claim] = _Copies(claim_of, self._told(on_claims))
        self._pods: _Copies[Pod] = _Copies(pod_of, self._told(on_pods))
        self._slices: _Copies[Slice] = _Copies(slice_of, lambda old, new: self._sliced())
        self._occupancy: Occupancy | None = None
        self._group_reflector = Reflector(
            api, GROUPS, on_change=_guarded(self._take_group), keep=_guarded_keep(kept_of_group)
        )
        self._classes = Reflector(api, DEVICE_CLASSES, on_change=_guarded(lambda change: on_groups(False)))
        self._reflectors = (
            self._group_reflector,
            self._classes,
            Reflector(api, CLAIMS, on_change=_guarded(self._claims.take), keep=_guarded_keep(kept_of_claim)),
            Reflector(
                api, PODS, fields=_NOT_ENDED, on_change=_guarded(self._pods.take), keep=_guarded_keep(kept_of_pod)
            ),
            Reflector(api, SLICES, fields=f"spec.driver={DRIVER}", on_change=_guarded(self._slices.take)),
        )

    @property
    def claims(self) -> Mapping[str, Claim]:
        """Claims that ask for devices of ours, or have some, by UID."""
        return self._claims.all

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Pods with claims that have not ended, by UID."""
        return self._pods.all

    @property
    def occupancy(self) -> Occupancy:
        """Who has which GPU now."""
        if self._occupancy is None:
            lanes = current(self._slices.all.values())
            self._occupancy = Occupancy(lanes, self.claims.values(), self.pods)
        return self._occupancy

    def device_class(self, name: str) -> Object | None:
        """The DeviceClass of that name."""
        return self._classes.by_name(name)

    def pods_by_claim(self) -> Mapping[str, list[Pod]]:
        """The pods of each claim, by its UID: by name, its owner, and those that it is reserved for."""
        uids = {(claim.namespace, claim.name): uid for uid, claim in self.claims.items()}
        found: dict[str, dict[str, Pod]] = defaultdict(dict)
        for pod in self.pods.values():
            for name in pod.claims:
                if uid := uids.get((pod.namespace, name)):
                    found[uid][pod.uid] = pod
        for claim in self.claims.values():
            for ref in claim.pods:
                if pod_there := self.pods.get(ref.uid):
                    found[claim.uid][ref.uid] = pod_there
        return {uid: list(pods.values()) for uid, pods in found.items()}

    def running(self) -> Iterator[asyncio.Task[None]]:
        """Starts to watch; the tasks run until they are cancelled."""
        return (asyncio.create_task(reflector.run()) for reflector in self._reflectors)

    async def groups_synced(self) -> None:
        """Returns when all groups are known."""
        await self._group_reflector.synced.wait()

    async def synced(self) -> None:
        """Returns when everything is known."""
        for reflector in self._reflectors:
            await reflector.synced.wait()

    def _told(
        self, listener: Callable[[_Seen | None, _Seen | None], None]
    ) -> Callable[[_Seen | None, _Seen | None], None]:
        def changed(old: _Seen | None, new: _Seen | None) -> None:
            self._occupancy = None
            listener(old, new)

        return changed

    def _sliced(self) -> None:
        self._occupancy = None
        self._on_slices()

    def _take_group(self, change: Change) -> None:
        if change.new is None:
            self._on_groups(self.groups.drop(change.old or {}))
        elif self.groups.take(change.new):
            self._on_groups(True)
        elif change.old is None or _told_of(change.old) != _told_of(change.new):
            self._on_groups(False)


def _told_of(group: Object) -> object:
    """What of a group is read here, without the version, which rises with every record of a lease."""
    return {**group, "metadata": {**group["metadata"], "resourceVersion": ""}}


def _guarded(take: Callable[[Change], None]) -> Callable[[Change], None]:
    """An object that cannot be read is logged; it must not end the watch for all others."""

    def taken(change: Change) -> None:
        try:
            take(change)
        except Exception:  # noqa: BLE001 - outermost frame of a reflector's callback
            _log.exception("cannot read %s", _name(change.new or change.old or {}))

    return taken


def _guarded_keep(keep: Callable[[Object], Object | None]) -> Callable[[Object], Object | None]:
    """The same for what cuts an object down; one that cannot be read is left out."""

    def kept(raw: Object) -> Object | None:
        try:
            return keep(raw)
        except Exception:  # noqa: BLE001 - outermost frame of a reflector's callback
            _log.exception("cannot read %s", _name(raw))
            return None

    return kept


def _name(raw: Object) -> str:
    metadata = raw.get("metadata", {})
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
