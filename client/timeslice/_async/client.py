"""The client of the orchestrator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from timeslice import lifetime
from timeslice._async.asking import end
from timeslice._async.lease import AsyncLease, acquire
from timeslice._async.region import AsyncIdle, AsyncRegion
from timeslice.calls import async_close
from timeslice.decorate import decorate
from timeslice.regions import regions_of
from timeslice.session import ClientOptions, Session
from timeslice.settings import Mode, chosen_groups

F = TypeVar("F", bound=Callable[..., Any])


class AsyncPhase(AsyncRegion):
    """What `on_accelerators(...)` returns: a decorator, and a context manager that may be entered again and again."""

    def __call__(self, function: F) -> F:
        return decorate(function, regions_of(self._session, self._group_ids, self._timeout))


class AsyncOrchestratorClient:
    """Takes turns on accelerators with other jobs.

    Safe to use from several threads and event loops. Not to be used in a forked child: that needs a client of its own.

    A background thread renews what is held. When the orchestrator takes a lease away (it was not renewed in time, or
    an admin released it by force), the job's state is parked and safe, and its accelerator calls wait. By default the
    client then asks for the group again by itself, since the body may be inside such a call: `lease.lost` is set
    meanwhile, `lease.check()` raises LeaseLost, and the loss is logged. With `reacquire_lost=False` it does not, and
    leaving the region raises LeaseLost, unless the body raised an error of its own.

    Args:
        address: of the orchestrator, `host:port` or `unix:///path`; default TIMESLICE_ORCHESTRATOR.
        options: see `ClientOptions`.

    Raises:
        ConfigError: only a part of the configuration is there; the message names the rest. With no configuration at all
            the client is off: everything is granted at once, nothing is locked.
    """

    def __init__(self, address: str | None = None, **options: Unpack[ClientOptions]) -> None:
        self._session = Session(address, options)

    @property
    def job_id(self) -> str:
        """The job's name; may be empty when the client is off."""
        return self._session.settings.job_id

    @property
    def mode(self) -> Mode:
        """on, observe or off."""
        return self._session.settings.mode

    async def acquire(self, group_id: str | Iterable[str] | None = None, *, timeout: float | None = None) -> AsyncLease:
        """Waits until the groups' accelerators are this job's, its state in place.

        Groups that this client holds already are counted, without asking the orchestrator.

        Args:
            group_id: one group, or several that are granted together or not at all; default TIMESLICE_GROUP_ID.
            timeout: how long to wait at most (seconds); None waits as long as it takes, through failures of the
                network and restarts of the orchestrator, and says so every few seconds.

        Raises:
            AcquireTimeout: not granted in time.
            GroupNotFound, JobNotAdmitted, WouldDeadlock, JobQuarantined, InvalidRequest: refused.
            ForkedClient: in a forked child.

        However it ends without a lease (Ctrl-C, cancellation, errors), the request leaves the queue.
        """
        return await acquire(self._session, self._groups(group_id), timeout)

    async def yield_(self, group_id: str | Iterable[str] | None = None) -> None:
        """Gives back what `acquire()` of the same groups got; the last of nested yields frees the accelerators.

        Do not touch them afterwards. When the orchestrator does not answer, the yield is delivered in the background.

        Raises:
            NotHolder: this client does not hold these groups.
            LeaseLost: the lease had been taken away, and the client was made with `reacquire_lost=False`.
        """
        self._session.check_usable()
        await end(self._session, self._session.share_to_end(self._groups(group_id)))

    @overload
    def on_accelerators(self, function: F, /) -> F: ...

    @overload
    def on_accelerators(
        self,
        groups: str | Iterable[str] | None = None,
        /,
        *,
        group_id: str | Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> AsyncPhase: ...

    def on_accelerators(
        self,
        target: Any = None,
        /,
        *,
        group_id: str | Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Holds the groups around a function's body, or a block.

        Decorates functions, coroutine functions, generators and async generators (held from the first step to the
        end), methods, and also stands without parentheses. A coroutine function waits without blocking its loop,
        whichever of the two clients decorates it; a plain function blocks its thread.

        Args:
            target: the function, or the same as `group_id`.
            group_id: as in `acquire`.
            timeout: as in `acquire`.

        An error of the body is never hidden by one of the yield; that one is noted on it.
        """
        if callable(target) or isinstance(target, (classmethod, staticmethod)):
            return AsyncPhase(self._session, self._groups(group_id), timeout)(target)
        return AsyncPhase(self._session, self._groups(target if group_id is None else group_id), timeout)

    def idle(self, group_id: str | Iterable[str] | None = None, *, timeout: float | None = None) -> AsyncIdle:
        """Lends the accelerators out inside a held region, for work that does not need them, such as a reward.

        Args:
            group_id: which groups; default all that the caller holds.
            timeout: for acquiring them again at the end.
        """
        groups = None if group_id is None else chosen_groups(group_id, "")
        return AsyncIdle(self._session, groups, timeout)

    async def aclose(self) -> None:
        """Gives everything back and closes the connection, within 3 s. It is called when the process ends anyway."""
        if not (self._session.forked or self._session.closed):
            await async_close(self._session, time.monotonic() + lifetime.EXIT_BUDGET_S)

    async def __aenter__(self) -> AsyncOrchestratorClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _groups(self, group_id: str | Iterable[str] | None) -> tuple[str, ...]:
        settings = self._session.settings
        default = settings.group_id or ("default" if settings.mode is Mode.OFF else "")
        return chosen_groups(group_id, default)
