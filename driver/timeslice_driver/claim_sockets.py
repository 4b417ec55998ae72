"""What the pods of each claim reach the node by: a socket in a folder of their own, which prepare has mounted for them.
Beside it are the authorities by which they know the orchestrator.

So a pod can reach nobody's parts but its own. A server costs about 20 KiB and one descriptor, a connection about 70 KiB
and two (grpcio 1.82).
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc.aio
from timeslice_api.bounded_files import CERTIFICATES, content_of
from timeslice_api.errors import ConfigError
from timeslice_api.limits import SERVER_LIMITS
from timeslice_api.pings import SERVER_PINGS
from timeslice_api.v1alpha1 import snapshot_agent_pb2_grpc

from timeslice_driver.claims import PreparedClaim
from timeslice_driver.refusals import Decoding
from timeslice_driver.sockets import listen
from timeslice_driver.whole_files import replace_file

log = logging.getLogger(__name__)

NAME: Final = "agent.sock"
CA_NAME: Final = "ca.crt"
_FOLDER_MODE: Final = 0o755
_CA_MODE: Final = 0o644
_PARENT_MODE: Final = 0o711  # other users of the machine cannot list the claims, whose folders are for their pods
_SOCKET_MODE: Final = 0o666  # a pod may run as any user; who can reach the folder at all, the mount decides
_STOP_GRACE_S: Final = 0.5
# What a pod can make the node keep for it.
_LIMITS: Final = (
    ("grpc.max_receive_message_length", 64 << 10),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.max_allowed_incoming_connections", 256),  # each of a job's processes has one
)
_OPTIONS: Final = dict((*SERVER_PINGS, *SERVER_LIMITS, *_LIMITS, ("grpc.so_reuseport", 0)))
_CALLS_AT_ONCE: Final = 64


class ClaimSockets:
    """A folder and a server for each claim. Between `serve` and `stop` they answer; without, they are only prepared.

    Args:
        folder: in which each claim has one, named by its UID.
        ca: file of the authorities that the orchestrator's certificate must be of, for the pods; None: they need none.
    """

    def __init__(self, folder: Path, ca: Path | None = None) -> None:
        self._folder = folder
        self._ca = ca
        self._servers: dict[str, grpc.aio.Server] = {}
        self._uids: set[str] = set()
        self._make: Callable[[str], snapshot_agent_pb2_grpc.SnapshotAgentServicer] | None = None

    async def open(self, claim: PreparedClaim) -> None:
        """Makes the claim's folder, and its server when there is one to make. Safe to repeat.

        Raises:
            ConfigError: the folder or the socket cannot be made.
        """
        self._uids.add(claim.uid)
        self._make_folder(claim.uid)
        await self._start(claim.uid)

    async def close(self, uid: str) -> None:
        """Ends the claim's server and removes its folder. Safe to repeat."""
        self._uids.discard(uid)
        if server := self._servers.pop(uid, None):
            await server.stop(_STOP_GRACE_S)
        shutil.rmtree(self._folder / uid, ignore_errors=True)

    def renew_ca(self) -> None:
        """Gives all claims the authorities as they are now. What cannot be is logged, and they keep the former ones."""
        for uid in sorted(self._uids):
            try:
                self._put_ca(uid)
            except (OSError, ValueError) as error:
                log.error("claim %s keeps the former authorities: %s", uid, error, extra={"claim_uid": uid})

    async def serve(self, make: Callable[[str], snapshot_agent_pb2_grpc.SnapshotAgentServicer]) -> None:
        """Has all claims, those that come later too, answered by what `make` makes for their UIDs.

        Raises:
            ConfigError: a socket cannot be made.
        """
        self._make = make
        for uid in sorted(self._uids):
            self._make_folder(uid)
            await self._start(uid)

    async def stop(self) -> None:
        """Ends the servers; claims and folders stay. Safe to repeat."""
        self._make = None
        servers, self._servers = self._servers, {}
        await asyncio.gather(*(server.stop(_STOP_GRACE_S) for server in servers.values()))

    def _make_folder(self, uid: str) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / uid).mkdir(exist_ok=True)
            self._folder.chmod(_PARENT_MODE)  # whatever the umask is
            (self._folder / uid).chmod(_FOLDER_MODE)
            self._put_ca(uid)
        except OSError as error:
            at_fault = error.filename or self._folder / uid
            raise ConfigError(f"cannot make the folder of claim {uid}: {at_fault}: {error.strerror}") from error
        except ValueError as error:
            raise ConfigError(f"cannot make the folder of claim {uid}: {error}") from error

    def _put_ca(self, uid: str) -> None:
        if self._ca is not None:
            replace_file(self._folder / uid / CA_NAME, content_of(self._ca, CERTIFICATES), mode=_CA_MODE, durable=False)

    async def _start(self, uid: str) -> None:
        if self._make is None or uid in self._servers:
            return
        server = grpc.aio.server(
            interceptors=[Decoding()],
            options=[*_OPTIONS.items()],
            maximum_concurrent_rpcs=_CALLS_AT_ONCE,
        )
        self._servers[uid] = server
        try:
            snapshot_agent_pb2_grpc.add_SnapshotAgentServicer_to_server(self._make(uid), server)
            listen(server, self._folder / uid / NAME, mode=_SOCKET_MODE)
            await server.start()
        except BaseException:
            self._servers.pop(uid, None)
            raise
