"""Many ranks of one job: rank 0 acquires and yields for all, the others wait on CPU."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from timeslice_api import errors
from timeslice_api.errors import ConfigError, ConnectionLost, TimesliceError
from timeslice_api.whole_numbers import whole_number

from timeslice import rank_link
from timeslice._sync.asking import register
from timeslice._sync.client import OrchestratorClient
from timeslice.decorate import Regions, decorate
from timeslice.rank_gathering import Gathering
from timeslice.rank_key import ENV_RANKS_KEY, key_for
from timeslice.rank_link import Link
from timeslice.settings import Mode

log = logging.getLogger("timeslice")

F = TypeVar("F", bound=Callable[..., Any])

ENV_RANKS_ADDRESS = "TIMESLICE_RANKS_ADDRESS"
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_MOST_RANKS = (1 << 31) - 1  # as many as MPI can count
CONNECT_S = 600.0  # ranks of a large job start minutes apart
AFTER_FAILURE_S = 30.0  # how long rank 0, whose own body failed, waits for the others to leave theirs


class RankedClient:
    """For SPMD programs (torchrun, srun, mpirun), where all ranks run the same loop: all of them call the same methods.

    A phase begins when every rank has asked and rank 0 has been granted, and ends when every rank has left it, so the
    accelerators are never given away under a slow rank. Have each rank synchronize its device before it leaves. Where
    one driver process controls the others (Ray), use `OrchestratorClient` in the driver alone.

    Args:
        client: of this rank; on ranks other than 0 it registers the process with its node, and acquires nothing.
        rank, world_size: default from torchrun, Slurm, Open MPI or PMI variables.
        address: where rank 0 listens for the others, a socket path or `host:port`; default TIMESLICE_RANKS_ADDRESS.
        key_file: by which ranks know each other, the same for all (see `timeslice.rank_key`); where other machines
            reach the address it is needed. Default TIMESLICE_RANKS_KEY.
        connect_s: how long ranks wait for each other at the first phase (seconds).

    Raises:
        ConfigError: rank, size or address are not known, or the key is missing or is none.
    """

    def __init__(
        self,
        client: OrchestratorClient,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        address: str | None = None,
        key_file: str | None = None,
        connect_s: float = CONNECT_S,
    ) -> None:
        self.rank = _number(rank, RANK_VARIABLES)
        self.world_size = _number(world_size, SIZE_VARIABLES)
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(f"rank {self.rank} is not one of {self.world_size}")
        self._client, self._connect_s = client, connect_s
        self._alone = self.world_size == 1 or client.mode is not Mode.ON
        self._address = address or os.environ.get(ENV_RANKS_ADDRESS, "")
        if not self._alone and not self._address:
            raise ConfigError(f"{ENV_RANKS_ADDRESS} is not set", hint="a path, or host:port of rank 0")
        key_file = os.environ.get(ENV_RANKS_KEY, "") if key_file is None else key_file
        self._key = None if self._alone else key_for(self._address, key_file)
        self._server = rank_link.listen(self._address) if self.rank == 0 and not self._alone else None
        self._links: list[Link] = []

    def acquire(self, group_id: str | Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """Returns on every rank when the groups are held. Errors as in `OrchestratorClient.acquire`, on every rank.

        Raises:
            ConnectionLost: another rank is gone.
        """
        groups = self._client._groups(group_id)
        if self._alone:
            self._client.acquire(groups, timeout=timeout)
        elif self.rank == 0:
            self._acquire_for_all(groups, timeout)
        else:
            register(self._client._session, groups, timeout)
            self._connect()
            self._links[0].send(want=groups)
            _raise_told(self._links[0].receive())

    def yield_(self, group_id: str | Iterable[str] | None = None) -> None:
        """This rank has left the phase; rank 0 waits for all, and gives the groups back."""
        self._leave(self._client._groups(group_id), None)

    def on_accelerators(
        self, group_id: str | Iterable[str] | None = None, *, timeout: float | None = None
    ) -> RankedPhase:
        """Holds the groups around a block, or around a function or generator that it decorates, on every rank."""
        return RankedPhase(self, self._client._groups(group_id), timeout)

    def close(self) -> None:
        """Ends the connections between the ranks; the client stays."""
        for link in self._links:
            link.close()
        if self._server is not None:
            self._server.close()
        self._links, self._server = [], None

    def _acquire_for_all(self, groups: tuple[str, ...], timeout: float | None) -> None:
        self._connect()
        try:
            for link in self._links:
                _check_same(link, groups, link.receive().get("want"))
            self._client.acquire(groups, timeout=timeout)
        except BaseException as error:
            self._tell_all(**_told(error))
            raise
        self._tell_all(granted=True)

    def _leave(self, groups: tuple[str, ...], patience_s: float | None) -> None:
        if self._alone:
            self._client.yield_(groups)
        elif self.rank != 0:
            self._links[0].send(left=groups)
        else:
            lost = self._await_others(groups, patience_s)
            self._client.yield_(groups)
            if lost is not None:
                raise lost

    def _leave_after(self, groups: tuple[str, ...], error: BaseException | None) -> None:
        if error is None:
            self._leave(groups, None)
            return
        try:
            self._leave(groups, AFTER_FAILURE_S)
        except TimesliceError as failure:
            log.warning("after %s: %s", type(error).__name__, failure)
            error.add_note(f"timeslice: the group was not given back in order: {failure}")

    def _await_others(self, groups: tuple[str, ...], patience_s: float | None) -> TimesliceError | None:
        """Until every other rank has left, or is gone: then it uses no accelerator either."""
        lost: TimesliceError | None = None
        for link in self._links:
            try:
                _check_same(link, groups, link.receive(patience_s).get("left"))
            except TimesliceError as error:
                lost = error
        return lost

    def _tell_all(self, **message: Any) -> None:
        for link in self._links:
            try:
                link.send(**message)
            except ConnectionLost as error:  # it is found again when its leaving is waited for
                log.warning("%s", error.message)

    def _connect(self) -> None:
        if self._links:
            return
        if self._server is not None:
            gathering = Gathering(self._server, self.world_size - 1, key=self._key, greet=self._greeted)
            self._links = gathering.links(self._connect_s)
            self._server.close()  # all are there, and nobody else has anything to say
            self._server = None
            return
        hello = {"rank": self.rank, "job_id": self._client.job_id, "host": socket.gethostname()}
        self._links = [rank_link.connect(self._address, self._connect_s, hello=hello, key=self._key)]

    def _greeted(self, hello: Mapping[str, Any]) -> int:
        rank = hello.get("rank")
        if hello.get("job_id") != self._client.job_id or not isinstance(rank, int) or not 0 < rank < self.world_size:
            raise ConfigError(f"{hello} came to {self._address}, where ranks of {self._client.job_id} were expected")
        return rank


class RankedPhase:
    """A phase of all ranks: a context manager and a decorator."""

    def __init__(self, client: RankedClient, group_ids: tuple[str, ...], timeout: float | None) -> None:
        self._client, self._group_ids, self._timeout = client, group_ids, timeout

    def __enter__(self) -> None:
        self._client.acquire(self._group_ids, timeout=self._timeout)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client._leave_after(self._group_ids, error)

    def __call__(self, function: F) -> F:
        """Decorates a function or generator. Raises TypeError for asynchronous ones."""
        return decorate(function, Regions(plain=lambda: self, awaiting=None))


def _number(given: int | None, variables: Iterable[str]) -> int:
    if given is not None:
        return given
    for name in variables:
        if (value := whole_number(os.environ.get(name, ""), _MOST_RANKS)) is not None:
            return value
    raise ConfigError(f"none of {', '.join(variables)} is set", hint="pass rank= and world_size=")


def _check_same(link: Link, groups: tuple[str, ...], others: Any) -> None:
    if others != list(groups):
        raise ConfigError(f"{link.name} is at {others}, and rank 0 at {list(groups)}: ranks must call the same phases")


def _told(error: BaseException) -> Mapping[str, str]:
    if isinstance(error, TimesliceError):
        return {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    return {"error": "TimesliceError", "message": f"rank 0 failed: {type(error).__name__}: {error}", "hint": ""}


def _raise_told(message: Mapping[str, Any]) -> None:
    if "error" in message:
        kind: Callable[..., TimesliceError] = errors.by_name(message["error"])
        raise kind(message["message"], hint=message["hint"])
