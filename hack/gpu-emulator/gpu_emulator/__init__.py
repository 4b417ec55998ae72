"""A stand-in for GPUs: a daemon as the silicon, and two C libraries in the place of NVIDIA's."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_emulator.control import Control
    from gpu_emulator.emulator import Emulator, EmulatorError
    from gpu_emulator.faults import Fault

__all__ = ["Control", "Emulator", "EmulatorError", "Fault"]

_HOME_OF = {"Control": "control", "Emulator": "emulator", "EmulatorError": "emulator", "Fault": "faults"}


def __getattr__(name: str) -> object:
    """Loads on first use: the cuda-checkpoint command, started again and again, needs none of these."""
    if name not in _HOME_OF:
        raise AttributeError(name)
    return getattr(import_module(f"gpu_emulator.{_HOME_OF[name]}"), name)
