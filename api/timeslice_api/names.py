"""Names that jobs, nodes and clusters agree on: environment variables, sizes and defaults."""

from __future__ import annotations

import re

from timeslice_api.errors import InvalidRequest

# What prepare, `timeslice run` or a person puts into a job's environment.
ENV_ORCHESTRATOR = "TIMESLICE_ORCHESTRATOR"  # address: host:port or unix:///path
ENV_JOB_ID = "TIMESLICE_JOB_ID"
ENV_GROUP_ID = "TIMESLICE_GROUP_ID"  # the default group of acquire()
ENV_MODE = "TIMESLICE_MODE"  # on, observe or off
ENV_NODE_SOCKET = "TIMESLICE_NODE_SOCKET"  # path of the node's unix socket, for self-registration
ENV_TOKEN_FILE = "TIMESLICE_TOKEN_FILE"  # file with the token that calls to the orchestrator present
ENV_OBSERVE_FILE = "TIMESLICE_OBSERVE_FILE"  # where observe mode records phases (JSON lines)
# Files in PEM; see timeslice_api.tls for who uses TLS when.
ENV_TLS_CA = "TIMESLICE_TLS_CA"
ENV_TLS_CERT = "TIMESLICE_TLS_CERT"
ENV_TLS_KEY = "TIMESLICE_TLS_KEY"

DEFAULT_GROUP = "default"  # of all devices of a node to which nobody gave a group
MAX_WAIT_S = 30.0  # longest that one Acquire call waits at the server
MAX_SOCKET_PATH = 107  # bytes, of sockaddr_un.sun_path less its terminating zero

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?")
_PROCESS = re.compile(r"[^\n]{1,253}/[0-9]{1,10}/[0-9]{1,20}")


def process_name(node: str, pid: int, start_time: int) -> str:
    """A process as its node names it: RegisterResponse.process, AcquireRequest.process and Report.ended_processes."""
    return f"{node}/{pid}/{start_time}"


def node_of(process: str) -> str:
    """The node that has named a process."""
    return process.rsplit("/", 2)[0]


def checked_process(name: str, field: str) -> str:
    """The name, if a node can have made it.

    Raises:
        InvalidRequest: it cannot; the message names the field.
    """
    if not _PROCESS.fullmatch(name):
        raise InvalidRequest(f"{field} {name[:253]!r} is not a process as a node names it")
    checked_name(node_of(name), field)
    return name


def checked_name(value: str, field: str) -> str:
    """The value, when it is a good job or group id.

    Raises:
        InvalidRequest: it is empty, longer than 253 characters, or has other characters than letters, digits, `-_./`
            between a first and last letter or digit.
    """
    if not value:
        raise InvalidRequest(f"{field} is empty")
    if len(value) > 253:
        raise InvalidRequest(f"{field} has {len(value)} characters; 253 are allowed")
    if not _NAME.fullmatch(value) or ".." in value or "//" in value:
        raise InvalidRequest(f"{field} {value!r} is not a name of letters, digits and '-', '_', '.', '/' inside")
    return value


def path_part(value: str, field: str) -> str:
    """The value, when it can be the name of a file: it leads nowhere else.

    Raises:
        InvalidRequest: it is no name, see `checked_name`, or has a `/`.
    """
    if "/" in checked_name(value, field):
        raise InvalidRequest(f"{field} {value!r} has a '/'")
    return value


def printable(text: str) -> str:
    """The text as one line, in which what cannot be printed, such as the ends of lines and what moves a terminal's
    cursor, is told by its number, as in Python."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def checked_socket_path(path: str, field: str) -> str:
    """The path, when a unix socket can have it.

    Raises:
        InvalidRequest: it names no file, is longer than the 107 bytes that the kernel allows, or is no text.
    """
    if path.rpartition("/")[2] in ("", ".", ".."):
        raise InvalidRequest(f"{field} {path!r} names no file", hint="give the path of the socket itself")
    if not path.isprintable():
        raise InvalidRequest(f"{field} {path!r} is not text that can be printed", hint="choose one in UTF-8")
    size = len(path.encode())
    if size > MAX_SOCKET_PATH:
        message = f"{field} {path!r} has {size} bytes; a unix socket path may have {MAX_SOCKET_PATH}"
        raise InvalidRequest(message, hint="choose a shorter one; sockets in a state directory move with --state-dir")
    return path
