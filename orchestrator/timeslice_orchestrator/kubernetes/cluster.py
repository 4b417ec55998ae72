"""What is watched, in the small form in which it is used here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
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
from timeslice_api.kinds.names import API_GROUP, DRIVER, PLURAL_GROUP, VERSION, group_of_class

from timeslice_orchestrator.core.model import Setback
from timeslice_orchestrator.kubernetes.claims import Claim, claim_of
from timeslice_orchestrator.kubernetes.groups import Groups, kept_of_group
from timeslice_orchestrator.kubernetes.lanes import slice_of
from timeslice_orchestrator.kubernetes.occupancy import Occupancy
from timeslice_orchestrator.kubernetes.pods import Pod, pod_of

_log = logging.getLogger(__name__)

GROUPS = Resource(API_GROUP, VERSION, PLURAL_GROUP, namespaced=False)
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"

_KEYS = ("uid", "namespace", "name", "resourceVersion")  # what a reflector needs of an object's metadata

_Seen = TypeVar("_Seen")


class Listener:
    """Who is told of changes, after `Cluster` has them. Each is called in the running loop and must not block."""

    def group_changed(self, name: str, *, in_spec: bool) -> None:
        """A group, or its DeviceClass, came, went or changed; `in_spec` when it is more than its status or class."""

    def claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        """A claim that concerns us came, went or changed."""

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod with claims came, went or changed."""

    def groups_touched(self, names: set[str]) -> None:
        """Something that these groups are told of by changed: claims, pods or slices. "" stands for all groups."""


class Cluster:
    """Copies of groups, their classes, claims, pods with claims or of a job, and slices.

    Args:
        api: the API server.
        listener: told of each change.
    """

    def __init__(self, api: ApiServer, listener: Listener) -> None:
        self.groups = Groups()
        self.occupancy = Occupancy()
        self.setbacks: dict[str, tuple[Setback, ...]] = {}  # of groups, as the engine has them
        self._listener = listener
        self._news = asyncio.Event()
        claims = _Copies(claim_of, self._claim_changed)
        pods = _Copies(pod_of, self._pod_changed)
        slices = _Copies(slice_of, lambda old, new: self._touch(self.occupancy.change_slice(old, new)))
        self._groups = Reflector(api, GROUPS, on_change=_guarded(self._take_group), keep=_guarded_keep(kept_of_group))
        self._classes = Reflector(api, DEVICE_CLASSES, on_change=_guarded(self._take_class))
        self._claims, self._pods = claims.reflector(api, CLAIMS), pods.reflector(api, PODS, fields=_NOT_ENDED)
        self._reflectors = (
            self._groups,
            self._classes,
            self._claims,
            self._pods,
            slices.reflector(api, SLICES, fields=f"spec.driver={DRIVER}"),
        )

    def device_class(self, name: str) -> Object | None:
        """The DeviceClass of that name."""
        return self._classes.by_name(name)

    def running(self) -> Iterator[asyncio.Task[None]]:
        """Starts to watch; the tasks run until they are cancelled."""
        return (asyncio.create_task(reflector.run()) for reflector in self._reflectors)

    async def groups_synced(self) -> None:
        """Returns when all groups are known."""
        await self._groups.synced.wait()

    @property
    def knows_pods(self) -> bool:
        """Whether all pods and claims are known."""
        return self._claims.synced.is_set() and self._pods.synced.is_set()

    async def changed(self) -> None:
        """Returns when a claim or a pod has changed."""
        await self._news.wait()

    async def synced(self) -> None:
        """Returns when everything is known."""
        for reflector in self._reflectors:
            await reflector.synced.wait()

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        touched = self.occupancy.change_claim(old, new)
        self._tell_news()
        self._listener.claim_changed(old, new)
        self._touch(touched)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        touched = self.occupancy.change_pod(old, new)
        self._tell_news()
        self._listener.pod_changed(old, new)
        self._touch(touched)

    def _tell_news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _touch(self, names: set[str]) -> None:
        if names:
            self._listener.groups_touched(names)

    def _take_group(self, change: Change) -> None:
        if change.new is None:
            name = (change.old or {})["metadata"]["name"]
            self._listener.group_changed(name, in_spec=self.groups.drop(change.old or {}))
        elif change.old is not None and _told_of(change.old) == _told_of(change.new):
            self.groups.renew(change.new)  # a lease was recorded: the commonest change by far
        else:
            in_spec = self.groups.take(change.new)
            self._listener.group_changed(change.new["metadata"]["name"], in_spec=in_spec)

    def _take_class(self, change: Change) -> None:
        name = group_of_class((change.new or change.old or {})["metadata"]["name"])
        if name is not None:
            self._listener.group_changed(name, in_spec=False)


class _Copies(Generic[_Seen]):
    """Objects in the small form in which alone they are kept: of thousands, the whole ones would take much room."""

    def __init__(
        self, form: Callable[[Object], _Seen | None], changed: Callable[[_Seen | None, _Seen | None], None]
    ) -> None:
        self._form = form
        self._changed = changed
        self._all: dict[str, _Seen] = {}  # by UID

    def reflector(self, api: ApiServer, resource: Resource, *, fields: str = "") -> Reflector:
        """One that follows the resource and tells of what concerns us, and only when the small form differs."""
        return Reflector(api, resource, fields=fields, on_change=_guarded(self._take), keep=_guarded_keep(self._kept))

    def _kept(self, raw: Object) -> Object | None:
        seen = self._form(raw)
        metadata = {key: raw["metadata"].get(key, "") for key in _KEYS}
        return None if seen is None else {"metadata": metadata, "seen": seen}

    def _take(self, change: Change) -> None:
        uid = (change.new or change.old or {})["metadata"]["uid"]
        old, new = self._all.pop(uid, None), change.new["seen"] if change.new else None
        if new is not None:
            self._all[uid] = new
        if old != new:
            self._changed(old, new)


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
