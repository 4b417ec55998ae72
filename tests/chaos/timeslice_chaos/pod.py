"""`python3 -m timeslice_chaos.pod LOGS OFFICE JOB_ID BYTES SECONDS`: a job's process in a pod.

OFFICE is a socket on which the machine tells the process its pid (`timeslice_chaos.cluster.pids`): in its pod it has
another one, and all logs have to mean the same by a number.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from timeslice_chaos import job
from timeslice_chaos.log import Log

_LIMIT_S = 30.0


def main() -> int:
    """As a job's process ends."""
    folder, office, *arguments = sys.argv[1:]
    log = Log(Path(folder), "job", pid=_own_pid(office))
    log.say("started", pod=os.environ["HOSTNAME"])
    return job.main(log, arguments)


def _own_pid(office: str) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_LIMIT_S)
        connection.connect(office)
        return int(connection.recv(64))


if __name__ == "__main__":
    sys.exit(main())
