"""A client of the daemon's control connection: faults, modes and a view of everything."""

import json
import socket
from pathlib import Path
from typing import Any

from gpu_emulator.faults import Fault

_TIME_LIMIT = 10.0  # seconds for one request


class Control:
    """Each call is one short connection; OSError when no daemon answers, ValueError when it refuses the request."""

    def __init__(self, socket_path: Path) -> None:
        self._socket_path = socket_path

    def request(self, **request: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIME_LIMIT)
            connection.connect(str(self._socket_path))
            connection.sendall(b"control " + json.dumps(request).encode() + b"\n")
            with connection.makefile() as lines:
                line = lines.readline()
        if not line:
            raise ConnectionError("the emulator ended before it answered")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["result"]

    def inject(self, fault: Fault) -> None:
        """Adds a fault to the script; its count of calls starts now."""
        self.request(do="inject", fault=fault.to_json())

    def clear_faults(self) -> None:
        self.request(do="clear_faults")

    def snapshot(self) -> dict[str, Any]:
        """``devices``: index, uuid, total and used bytes, modes.

        ``processes``: pid, uid, start_time, name, state (a name), poisoned, flags, group, restore_tid, contexts and
        resident bytes per device (keys are indexes as text), allocated bytes (parked or not).
        """
        return dict(self.request(do="snapshot"))

    def set_device(self, index: int, **modes: bool | int) -> None:
        """Changes ``mig``, ``persistence``, ``compute_mode`` or ``numa_node`` of a device."""
        self.request(do="set_device", index=index, modes=modes)

    def set_flags(self, pid: int, flags: str) -> None:
        """Replaces the flags of a process (as in GPU_EMULATOR_FLAGS)."""
        self.request(do="set_flags", pid=pid, flags=flags)
