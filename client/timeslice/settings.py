"""How a client is configured: constructor arguments first, then the environment; half a configuration is an error."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from timeslice_api import names
from timeslice_api.errors import ConfigError
from timeslice_api.tls import TlsFiles

log = logging.getLogger("timeslice")


class Mode(StrEnum):
    """What a client does: take turns, record phases only, or nothing."""

    ON = "on"
    OBSERVE = "observe"
    OFF = "off"


@dataclass(frozen=True)
class Settings:
    """A complete configuration.

    Attributes:
        address: of the orchestrator, `host:port` or `unix:///path`; empty unless the mode is on.
        group_id: what `acquire()` without a group means; may be empty.
        node_socket: path of the node's unix socket, where this process registers itself; empty when it need not. What
            was neither passed nor set counts as forgotten, and is told in the log.
        observe_file: where the mode observe records phases.
        token_file: with the token that calls to the orchestrator present; empty when it needs none.
        tls: files for the way to the orchestrator.
    """

    mode: Mode
    address: str = ""
    job_id: str = ""
    group_id: str = ""
    node_socket: str = ""
    observe_file: str = ""
    token_file: str = ""
    tls: TlsFiles = field(default_factory=TlsFiles)


@dataclass(frozen=True)
class Given:
    """What the caller passed; None where the environment decides."""

    address: str | None = None
    job_id: str | None = None
    group_id: str | None = None
    mode: str | None = None
    node_socket: str | None = None
    observe_file: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None


def resolve(given: Given, env: Mapping[str, str] = os.environ) -> Settings:
    """The configuration from arguments and environment.

    Raises:
        ConfigError: only a part of what is needed is there; the message names the missing variables.
        InvalidRequest: a job or group id is malformed.
    """
    found = Settings(
        mode=Mode.ON,
        address=_first(given.address, env.get(names.ENV_ORCHESTRATOR)),
        job_id=_first(given.job_id, env.get(names.ENV_JOB_ID)),
        group_id=_first(given.group_id, env.get(names.ENV_GROUP_ID)),
        node_socket=_first(given.node_socket, env.get(names.ENV_NODE_SOCKET)),
        observe_file=_first(given.observe_file, env.get(names.ENV_OBSERVE_FILE)),
        token_file=_first(given.token_file, env.get(names.ENV_TOKEN_FILE)),
        tls=TlsFiles(
            _first(given.tls_ca, env.get(names.ENV_TLS_CA)),
            _first(given.tls_cert, env.get(names.ENV_TLS_CERT)),
            _first(given.tls_key, env.get(names.ENV_TLS_KEY)),
        ),
    )
    wanted = _first(given.mode, env.get(names.ENV_MODE))
    mode = _mode(wanted) if wanted else _implied(found)
    if mode is Mode.OFF:
        return Settings(mode=mode, job_id=found.job_id, group_id=found.group_id)
    _require(mode, found)
    if mode is Mode.ON and given.node_socket is None and names.ENV_NODE_SOCKET not in env:
        log.warning(
            "%s is not set: nobody may know this process, so its state would not be parked", names.ENV_NODE_SOCKET
        )
    return _checked(Settings(**{**vars(found), "mode": mode}))


def _first(*values: str | None) -> str:
    return next((value for value in values if value is not None), "")


def _mode(word: str) -> Mode:
    try:
        return Mode(word.strip().lower())
    except ValueError:
        raise ConfigError(f"{names.ENV_MODE} is {word!r}; it may be on, observe or off") from None


def _implied(found: Settings) -> Mode:
    if found.address or found.job_id or found.group_id:
        return Mode.ON
    log.warning("timeslice is off: neither %s nor %s is set", names.ENV_ORCHESTRATOR, names.ENV_JOB_ID)
    return Mode.OFF


def _require(mode: Mode, found: Settings) -> None:
    needed = {names.ENV_JOB_ID: found.job_id}
    if mode is Mode.ON:
        needed[names.ENV_ORCHESTRATOR] = found.address
    else:
        needed[names.ENV_OBSERVE_FILE] = found.observe_file
    missing = sorted(name for name, value in needed.items() if not value)
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            hint=f"set it, pass it to the client, or set {names.ENV_MODE}=off to run without taking turns",
        )


def _checked(settings: Settings) -> Settings:
    names.checked_name(settings.job_id, "job_id")
    if settings.group_id:
        names.checked_name(settings.group_id, "group_id")
    if settings.node_socket:
        names.checked_socket_path(settings.node_socket, "node_socket")
    return settings


def chosen_groups(group_id: str | Iterable[str] | None, default: str) -> tuple[str, ...]:
    """The groups that a call means, sorted and without repetition.

    Raises:
        ConfigError: no group was named and there is no default.
        InvalidRequest: a group id is malformed.
    """
    named = (group_id,) if isinstance(group_id, str) else tuple(group_id or ())
    if not named and group_id is None:
        named = (default,) if default else ()
    if not named:
        raise ConfigError("no group_id was given", hint=f"pass group_id=..., or set {names.ENV_GROUP_ID}")
    return tuple(sorted({names.checked_name(name, "group_id") for name in named}))
