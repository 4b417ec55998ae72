"""The named points: functions of the orchestrator, the node and the client around which a fault can strike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _always(*_: Any) -> bool:
    return True


def _has_lease(answer: Any) -> bool:
    return bool(answer.DESCRIPTOR.name == "AcquireResponse" and answer.WhichOneof("outcome") == "lease")


def _takes(name: str) -> Callable[..., bool]:
    return lambda _engine, event: type(event).__name__ == name


@dataclass(frozen=True)
class Point:
    """A name, the function (`module:attribute.path`) that is wrapped, and which of its calls count."""

    name: str
    target: str
    counts: Callable[..., bool] = _always


_STEP = "timeslice_orchestrator.engine:Engine._step"
_CUDA = "timeslice_driver.backends.cuda:CudaBackend."

ORCHESTRATOR = (
    Point("acquire-taken", _STEP, _takes("AcquireRequested")),
    Point("yield-taken", _STEP, _takes("Yielded")),
    Point("result-taken", _STEP, _takes("CommandDone")),
    Point("hello-taken", _STEP, _takes("NodeConnected")),
    Point("store-written", "timeslice_orchestrator.store.sqlite:SqliteStore.write"),
    Point("epoch-raised", "timeslice_orchestrator.store.sqlite:SqliteStore.raise_epoch"),
    Point("command-sent", "timeslice_orchestrator.rpc.links:Links.send"),
    Point("grant-sent", "timeslice_orchestrator.waits:Waits.grant"),
)
NODE = (
    Point("hello-made", "timeslice_driver.node:Node._hello"),
    Point("recovered", "timeslice_driver.recovery:Recovery.run"),
    Point("registered", "timeslice_driver.registration:Registration.register"),
    Point("command-taken", "timeslice_driver.link:Link._obey"),
    Point("looked", "timeslice_driver.survey:Survey.look"),
    Point("journal-written", "timeslice_driver.journal:Journal._write"),
    Point("journal-synced", "timeslice_driver.whole_files:sync_folder"),
    Point("locked", _CUDA + "lock"),
    Point("checkpointed", _CUDA + "checkpoint"),
    Point("restored", _CUDA + "restore"),
    Point("unlocked", _CUDA + "unlock"),
    Point("undone", "timeslice_driver.converge:Convergence._undo"),
    Point("result-made", "timeslice_driver.wire:to_result"),
)
JOB = (
    Point("asks", "timeslice.acquisition:Acquisition.next_call"),
    Point("grant-heard", "timeslice.acquisition:Acquisition.answered", lambda _self, answer: _has_lease(answer)),
    Point("writes", "timeslice_chaos.job:Memory.write"),
    Point("yields", "timeslice.session:Session.yielding"),
    Point("yielded", "timeslice.session:Session.yielded"),
)
POINTS = {"orchestrator": ORCHESTRATOR, "node": NODE, "job": JOB}
