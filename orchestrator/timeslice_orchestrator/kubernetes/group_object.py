"""One TimesliceGroup at the API server, whose status this leader alone may write: compare, and swap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from dra_kubeletplugin.apiserver import ApiServer, ApiServerError, ConflictError, NotFoundError, Object
from timeslice_api.errors import StoreFailed
from timeslice_api.kinds.names import API_GROUP

from timeslice_orchestrator.core.model import GroupId
from timeslice_orchestrator.kubernetes.cluster import GROUPS
from timeslice_orchestrator.kubernetes.merge_patch import merge_patch
from timeslice_orchestrator.kubernetes.records import epoch_of

_log = logging.getLogger(__name__)

MANAGER = "timeslice-orchestrator"  # field manager of our part of the status
_TRIES = 8  # others write to the object too, but rarely


class DeposedError(Exception):
    """A later leader has written to a group."""


class GroupVanishedError(Exception):
    """The group is gone."""


class GroupObject:
    """One group.

    Args:
        api: where it is.
        group_id: its name.
        raw: the object as it was listed; None when it is not known yet.

    Attributes:
        seen: what its status was after the last write or reading; None when that is not known.
    """

    def __init__(self, api: ApiServer, group_id: GroupId, raw: Object | None = None) -> None:
        self._api = api
        self._group_id = group_id
        self._version = ""
        self._writing = asyncio.Lock()
        self.seen: dict[str, Any] | None = None
        if raw is not None:
            self._read(raw)

    async def write(self, epoch: int, wanted: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        """Makes the status what `wanted` makes of it; the fields that it does not name stay. Nothing is sent when
        nothing differs. When it is written at all, every earlier leader is kept from writing from then on.

        Raises:
            DeposedError: a leader with a higher epoch has written to it. Nothing is changed.
            GroupVanishedError: it is gone.
            StoreFailed: the API server refused or did not answer; it may have been written.
        """
        async with self._writing:
            try:
                await self._write(epoch, wanted)
            except NotFoundError as error:
                self.seen = None
                raise GroupVanishedError(self._group_id) from error
            except ApiServerError as error:
                self.seen = None
                message = f"cannot write the status of group {self._group_id}: {error}"
                hint = f"it needs the API server, and the right to patch timeslicegroups.{API_GROUP}/status"
                raise StoreFailed(message, hint=hint, group_id=self._group_id) from error

    async def _write(self, epoch: int, wanted: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        for _ in range(_TRIES):
            if self.seen is None:
                self._read(await self._api.get(GROUPS, self._group_id))
            seen = self.seen or {}
            if epoch_of(seen.get("records") or {}) > epoch:
                raise DeposedError(f"a leader of epoch {epoch_of(seen['records'])} has written to {self._group_id}")
            status = {**seen, **wanted(seen)}
            patch = merge_patch(seen, status)
            if not patch:
                return
            body = {"metadata": {"resourceVersion": self._version}, "status": patch}
            try:
                answer = await self._api.patch(
                    GROUPS, self._group_id, body, subresource="status", how="merge", manager=MANAGER
                )
            except ConflictError:
                self.seen = None
                continue
            self._read(answer)
            self._demand_kept(status)
            self.seen = status
            return
        raise StoreFailed(f"group {self._group_id} is written by somebody else all the time", group_id=self._group_id)

    def _read(self, raw: Object) -> None:
        self._version = raw["metadata"]["resourceVersion"]
        self.seen = raw.get("status") or {}

    def _demand_kept(self, status: Mapping[str, Any]) -> None:
        """A definition of the kind that lacks the field has the API server drop it without a word."""
        kept = (self.seen or {}).get("records") or {}
        if epoch_of(kept) != epoch_of(status.get("records") or {}):
            self.seen = None
            message = f"the API server does not keep status.records of group {self._group_id}"
            hint = "its CustomResourceDefinition is of another version: install that of this one"
            raise StoreFailed(message, hint=hint, group_id=self._group_id)
