"""Where every call is checked at its beginning, and where admin acts are written down."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

import grpc.aio
from timeslice_api.errors import Forbidden, TimesliceError, Unauthenticated
from timeslice_api.tokens import token_in

from timeslice_orchestrator.access import rules
from timeslice_orchestrator.access.caller import ADMIN_ACTS, LOCAL, Act, Authenticator, Caller, Kind, Wish

_audit = logging.getLogger("timeslice.audit")

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # in quotes: at run time it takes no parameters
_UNIX: Final = "unix:"
_REQUEST_ID: Final = "x-request-id"
_LONGEST: Final = 128  # characters of a request id that are written down
_JUDGED: Final = frozenset({Kind.POD, Kind.USER})


class Judge(Protocol):
    """What Kubernetes has to be asked before a decision."""

    async def know(self, caller: Caller) -> None:
        """Has the claims of a pod that has just started known, as far as that takes no long.

        Raises:
            Unavailable: no claims are known yet.
        """
        ...

    async def allows(self, caller: Caller, act: Act, group_id: str) -> bool:
        """Whether the caller may do that with the group; "" stands for all groups.

        Raises:
            Unavailable: nobody can tell now.
        """
        ...


class NoCluster:
    """The `World` and `Judge` of an orchestrator outside Kubernetes: there are no pods, and nobody is a user."""

    node_account = ""

    def jobs_of(self, caller: Caller) -> frozenset[str]:
        """See `World`."""
        return frozenset()

    def admits(self, group_id: str, namespace: str) -> bool:
        """See `World`."""
        return False

    def stranger(self, job_id: str, group_id: str, namespace: str) -> str:
        """See `World`."""
        return ""

    async def know(self, caller: Caller) -> None:
        """See `Judge`."""

    async def allows(self, caller: Caller, act: Act, group_id: str) -> bool:
        """See `Judge`."""
        return False


class Cluster(rules.World, Judge, Protocol):
    """Both, of one cluster."""


class Gate:
    """Finds out who calls, and holds them to the rules. Calls over a unix socket are the owner's: they may everything.

    Args:
        authenticator: of tokens; None: everybody who reaches the orchestrator is its owner.
        cluster: what decisions need to know of pods and users.
    """

    def __init__(self, authenticator: Authenticator | None = None, cluster: Cluster | None = None) -> None:
        self._authenticator = authenticator
        self._cluster: Cluster = cluster or NoCluster()

    @property
    def asks(self) -> bool:
        """Whether others than the orchestrator's owner reach it."""
        return self._authenticator is not None

    async def caller(self, context: _Context) -> Caller:
        """Who makes this call.

        Raises:
            Unauthenticated: that is not said, or not to be believed.
            Unavailable: nobody can tell now.
        """
        if self._authenticator is None or context.peer().startswith(_UNIX):
            return LOCAL
        token = token_in(context.invocation_metadata() or ())
        if not token:
            raise Unauthenticated("the call has no token")
        return await self._authenticator.caller(token)

    async def check(self, context: _Context, wish: Wish) -> Caller:
        """Who makes this call, when they may.

        Raises:
            Unauthenticated, Unavailable: see `caller`.
            Forbidden: they may not; the message says what they may.
        """
        caller = await self.caller(context)
        if caller is not LOCAL:
            await self.permit(caller, wish)
        return caller

    async def permit(self, caller: Caller, wish: Wish) -> None:
        """Raises Forbidden when the caller may not, and Unavailable when nobody can tell now."""
        if caller.kind in _JUDGED and (wish.act in ADMIN_ACTS or caller.kind is Kind.USER):
            group_id = wish.group_ids[0] if wish.group_ids else ""
            wish = replace(wish, granted=await self._cluster.allows(caller, wish.act, group_id))
        elif caller.kind is Kind.POD and wish.job_id:
            await self._cluster.know(caller)
        rules.may(caller, wish, self._cluster)

    def sees(self, caller: Caller, group_id: str) -> bool:
        """Whether a list of groups shows it this one."""
        return caller.kind is Kind.USER or rules.sees(caller, group_id, self._cluster)

    @asynccontextmanager
    async def admin(self, context: _Context, wish: Wish) -> AsyncIterator[None]:
        """Around an admin act: checks, and writes one line of who did what to which group and job, and what came of it.

        Raises:
            Unauthenticated, Forbidden, Unavailable: see `check`.
        """
        who, outcome = f"somebody at {context.peer()}", "cut off"
        try:
            caller = await self.caller(context)
            who = caller.name
            await self.permit(caller, wish)
            yield
            outcome = "done"
        except (Forbidden, Unauthenticated) as error:
            outcome = f"refused: {error.message}"
            raise
        except TimesliceError as error:
            outcome = f"failed: {error.message}"
            raise
        finally:
            _write(wish, who, outcome, _request_id(context))


def _write(wish: Wish, who: str, outcome: str, request_id: str) -> None:
    group, job = " and ".join(wish.group_ids), wish.job_id or "any"
    fields = {"act": wish.act.value, "caller": who, "group_id": group, "job_id": wish.job_id, "request_id": request_id}
    level = logging.INFO if outcome == "done" else logging.WARNING
    text = "audit: %s group=%s job=%s by %s: %s (request %s)"
    _audit.log(level, text, wish.act.value, group, job, who, outcome, request_id, extra=fields)


def _request_id(context: _Context) -> str:
    """The caller's own, by which it finds the line again, or one of ours."""
    for key, value in context.invocation_metadata() or ():
        if key == _REQUEST_ID and isinstance(value, str) and value.isprintable() and value:
            return value[:_LONGEST]
    return str(uuid.uuid4())
