"""What the API server may answer instead of what was asked for, and whether asking again can help.

Source: pkg/apis/meta/v1 `Status` and its reasons (k8s.io/apimachinery).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dra_kubeletplugin.apiserver.resource import Object

_LONGEST_PAUSE_S = 300.0  # between two tries, whatever the server asks for


class ApiServerError(Exception):
    """A request was refused, or did not get through.

    `status` is the HTTP status (0: no answer), `reason` the one word of the server, `message` for people.
    """

    retryable = False
    """Whether the same request, sent again, may succeed."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.status or 'no answer'} {self.reason})"


class UnauthorizedError(ApiServerError):
    """401: the server does not know who asks. A token that is being renewed may cure it."""

    retryable = True


class ForbiddenError(ApiServerError):
    """403: not allowed, by RBAC or by admission."""


class NotFoundError(ApiServerError):
    """404: no such object, or no such resource on this server."""


class AlreadyExistsError(ApiServerError):
    """409 at a create: the name is taken."""


class ConflictError(ApiServerError):
    """409: the object has changed since it was read, or is not the one of the preconditions. Read it again first."""


class ExpiredError(ApiServerError):
    """410: the version to list or watch from is too old. List again."""


class InvalidError(ApiServerError):
    """422: the object breaks the rules of its kind; `causes` holds (field, what is wrong with it)."""

    def __init__(self, status: int, reason: str, message: str, *, causes: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(status, reason, message)
        self.causes = causes


class ThrottledError(ApiServerError):
    """429: too many requests, or (for an eviction) a disruption budget that allows none now."""

    retryable = True

    def __init__(self, status: int, reason: str, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(status, reason, message)
        self.retry_after_s = retry_after_s


class UnavailableError(ApiServerError):
    """The server failed (5xx), could not be reached, or gave no answer in time. The request may have been done."""

    retryable = True


_PLAIN: dict[int, type[ApiServerError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
}


def from_status(code: int, status: Object, headers: Mapping[str, str] | None = None) -> ApiServerError:
    """The error that a `Status` object tells of."""
    reason, message = str(status.get("reason", "")), str(status.get("message", "")) or f"HTTP status {code}"
    details: Object = status.get("details") or {}
    if code == 422:
        return InvalidError(code, reason, message, causes=_causes(details))
    if code == 429:
        return ThrottledError(code, reason, message, retry_after_s=_retry_after(details, headers or {}))
    if code >= 500:
        return UnavailableError(code, reason, message)
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExistsError(code, reason, message)
    return _PLAIN.get(code, ApiServerError)(code, reason, message)


def from_answer(code: int, body: bytes, headers: Mapping[str, str]) -> ApiServerError:
    """The error that an HTTP answer tells of; a proxy on the way may answer with something else than a `Status`."""
    try:
        status: Any = json.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict):
        status = {"message": body[:500].decode(errors="replace").strip()}
    return from_status(code, status, headers)


def _causes(details: Object) -> tuple[tuple[str, str], ...]:
    return tuple((str(cause.get("field", "")), str(cause.get("message", ""))) for cause in details.get("causes") or [])


def _retry_after(details: Object, headers: Mapping[str, str]) -> float:
    said = headers.get("Retry-After") or details.get("retryAfterSeconds") or 1
    try:
        return min(max(0.0, float(said)), _LONGEST_PAUSE_S)
    except (TypeError, ValueError):  # the header may also be a date
        return 1.0
