"""The daemon's side of the control connection."""

import json
from typing import Any

from gpu_emulator.arena import PAGE
from gpu_emulator.device import Device
from gpu_emulator.faults import Fault, FaultScript
from gpu_emulator.process import Job, parse_flags
from gpu_emulator.silicon import Silicon

_MODES = {"mig": bool, "persistence": bool, "compute_mode": int, "numa_node": int}


class ControlDesk:
    """Answers requests of a test or a person; a bad request is answered, never raised."""

    def __init__(self, silicon: Silicon, faults: FaultScript) -> None:
        self._silicon = silicon
        self._faults = faults

    def answer(self, text: str) -> str:
        try:
            return json.dumps({"result": self._do(json.loads(text))})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            return json.dumps({"error": f"{type(error).__name__}: {error}"})

    def _do(self, request: dict[str, Any]) -> object:
        match request["do"]:
            case "inject":
                self._faults.add(Fault.from_json(request["fault"]))
            case "clear_faults":
                self._faults.clear()
            case "snapshot":
                return self._snapshot()
            case "set_device":
                self._set_device(self._silicon.devices[request["index"]], request["modes"])
            case "set_flags":
                job = self._silicon.jobs[request["pid"]]
                job.flags, job.group = parse_flags(request["flags"])
                self._silicon.changed.ring()
            case other:
                raise ValueError(f"unknown request {other!r}")
        return None

    @staticmethod
    def _set_device(device: Device, modes: dict[str, Any]) -> None:
        for mode, value in modes.items():
            setattr(device, mode, _MODES[mode](value))

    def _snapshot(self) -> dict[str, Any]:
        return {
            "devices": [_describe_device(device) for device in self._silicon.devices],
            "processes": [_describe_job(job) for job in self._silicon.jobs.values()],
        }


def _describe_device(device: Device) -> dict[str, Any]:
    return {
        "index": device.index,
        "uuid": device.uuid_text,
        "total": device.arena.total,
        "used": device.arena.used,
        **{mode: getattr(device, mode) for mode in _MODES},
    }


def _describe_job(job: Job) -> dict[str, Any]:
    return {
        "pid": job.pid,
        "uid": job.uid,
        "start_time": job.start_time,
        "name": job.name,
        "state": job.state.name,
        "poisoned": job.poisoned,
        "flags": sorted(job.flags),
        "group": job.group,
        "restore_tid": job.restore_tid,
        "contexts": {str(device): count for device, count in job.contexts.items()},
        "resident": {str(device): job.pages_on(device) * PAGE for device in job.devices},
        "allocated": sum(job.pages_wanted().values()) * PAGE,
    }
