"""What a node must have to itself, and the backend that it works with. What they open, the given stack closes."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from functools import partial

from timeslice_api.errors import ConfigError, Unavailable
from timeslice_api.file_lock import FileLock

from timeslice_driver.backends.cuda import Calls, CudaBackend
from timeslice_driver.backends.cuda_command import CommandCalls
from timeslice_driver.backends.cuda_driver import DriverCalls
from timeslice_driver.config import NodeConfig
from timeslice_driver.job_files import JobFiles
from timeslice_driver.processes import ProcFs

log = logging.getLogger(__name__)


async def reserve(config: NodeConfig, stack: AsyncExitStack, *, patient: bool) -> None:
    """The state directory, made when it is missing, and the socket are this node's alone.

    Args:
        patient: waits for a node that has them, since it ends soon.

    Raises:
        ConfigError: the directory cannot be made, or another node has one of them.
    """
    try:
        config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the state directory {config.state_dir}: {error.strerror}") from error
    for path, what in (
        (config.state_dir / "node.lock", f"state directory {config.state_dir}"),
        (config.socket.with_name(f"{config.socket.name}.lock"), f"socket {config.socket}"),
    ):
        lock = FileLock(path, what, by="node")
        if patient:
            await lock.wait(partial(log.info, "%s is waited for until %s ends", what))
        else:
            lock.take()
        stack.callback(lock.release)


async def open_backend(config: NodeConfig, procfs: ProcFs, stack: AsyncExitStack) -> CudaBackend:
    """The backend of the configuration; `auto` falls back to the command where the driver has no functions.

    Raises:
        Unavailable: it cannot park processes here; the hint says what to do.
    """
    refusals = []
    ways: dict[str, Calls] = {
        "cuda": DriverCalls(config.libcuda, JobFiles(procfs), start_s=config.limits.start_s),
        "cuda-checkpoint": CommandCalls(config.cuda_checkpoint),
    }
    for calls in ways.values() if config.backend == "auto" else [ways[config.backend]]:
        backend = CudaBackend(calls, alive=procfs.alive, limits=config.limits)
        stack.push_async_callback(backend.close)
        await backend.open()
        capabilities = backend.capabilities()
        if capabilities.unavailable is None:
            log.info("backend %s, %s", capabilities.name, capabilities.detail)
            return backend
        refusals.append(capabilities.unavailable)
    raise Unavailable("; ".join(fault.message for fault in refusals), hint=refusals[0].hint)
