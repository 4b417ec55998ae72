"""Settings of a job's environment that break a park, or its wait while parked. Pure.

Sources: README of github.com/NVIDIA/cuda-checkpoint and its issues 5, 27, 30, 45; NCCL issues 2337, 2349, 2350;
ProcessGroupNCCL.cpp of PyTorch (heartbeat); pytorch issue 147851 (expandable segments).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

_HEARTBEAT_S: Final = 480.0  # PyTorch's own limit


@dataclass(frozen=True)
class Setting:
    """One rule.

    Attributes:
        name: the variable.
        harmful: whether its value (None when it is not set) does harm, given the whole environment.
        harm: what happens.
        mend: what to set.
        several_devices: it only matters to jobs with more than one device.
    """

    name: str
    harmful: Callable[[str | None, Mapping[str, str]], bool]
    harm: str
    mend: str
    several_devices: bool = True


def _not(wanted: str) -> Callable[[str | None, Mapping[str, str]], bool]:
    return lambda value, _: value != wanted


def _shares_memory(value: str | None, environ: Mapping[str, str]) -> bool:
    return value != "0" and environ.get("NCCL_P2P_DISABLE") != "1"


def _heartbeat_ends(value: str | None, environ: Mapping[str, str]) -> bool:
    if environ.get("TORCH_NCCL_ENABLE_MONITORING") in {"0", "false", "False"}:
        return False
    try:
        return float(value or _HEARTBEAT_S) <= _HEARTBEAT_S
    except ValueError:
        return True


SETTINGS: Final = (
    Setting(
        "NCCL_P2P_DISABLE",
        _not("1"),
        "ranks map each other's device memory, with which a park hangs or cannot be undone",
        "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1, or suspend the communicators before each yield (NCCL 2.29.7)",
    ),
    Setting(
        "NCCL_CUMEM_ENABLE",
        _shares_memory,
        "memory shared by cuMem handles is parked and then cannot be restored",
        "NCCL_CUMEM_ENABLE=0",
    ),
    Setting(
        "NCCL_NVLS_ENABLE",
        _not("0"),
        "with NVLink multicast objects a checkpoint never ends",
        "NCCL_NVLS_ENABLE=0",
    ),
    Setting(
        "NCCL_CUMEM_HOST_ENABLE",
        _not("0"),
        "NCCL's own checkpoint helper may deadlock, without a time limit",
        "NCCL_CUMEM_HOST_ENABLE=0",
    ),
    Setting("NCCL_RAS_ENABLE", _not("0"), "NCCL's monitor takes a parked rank for a dead one", "NCCL_RAS_ENABLE=0"),
    Setting(
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        _heartbeat_ends,
        f"PyTorch aborts a process that is parked for longer than {_HEARTBEAT_S:g} s",
        "TORCH_NCCL_ENABLE_MONITORING=0, or TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC above the longest wait",
    ),
    Setting(
        "VLLM_ALLREDUCE_USE_SYMM_MEM",
        _not("0"),
        "vLLM's symmetric memory makes multicast objects, with which a checkpoint never ends",
        "VLLM_ALLREDUCE_USE_SYMM_MEM=0, and --disable-custom-all-reduce",
    ),
    Setting(
        "PYTORCH_CUDA_ALLOC_CONF",
        lambda value, environ: _expands(value) or _expands(environ.get("PYTORCH_ALLOC_CONF")),
        "expandable segments break engines that sleep, and hide the process from NVML's lists",
        "expandable_segments:False",
        several_devices=False,
    ),
    Setting(
        "CUDA_MPS_PIPE_DIRECTORY",
        lambda value, _: value is not None,
        "a client of MPS cannot be parked",
        "start the job without MPS",
        several_devices=False,
    ),
)


def _expands(value: str | None) -> bool:
    return "expandable_segments:true" in (value or "").lower().replace(" ", "")


def harmful(environ: Mapping[str, str], *, devices: int) -> tuple[Setting, ...]:
    """The rules that a job's environment breaks, for a job with that many devices."""
    concerned = (setting for setting in SETTINGS if devices > 1 or not setting.several_devices)
    return tuple(setting for setting in concerned if setting.harmful(environ.get(setting.name), environ))
