"""A stand-in for GPUs: a daemon as the silicon, and two C libraries in the place of NVIDIA's."""

from gpu_emulator.control import Control
from gpu_emulator.emulator import Emulator, EmulatorError
from gpu_emulator.faults import Fault

__all__ = ["Control", "Emulator", "EmulatorError", "Fault"]
