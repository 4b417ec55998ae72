"""Who presents a service account's token: the API server is asked once, and its answer is kept for a while.

A token is known here by its digest alone. The times are the kubelet's own for the same question
(--authentication-token-webhook-cache-ttl).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from dra_kubeletplugin.apiserver import ApiServer, ApiServerError, Resource
from timeslice_api.errors import Unauthenticated, Unavailable
from timeslice_api.tokens import AUDIENCE

from timeslice_orchestrator.access.caller import Caller, Kind
from timeslice_orchestrator.kubernetes.raw import Raw, at

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
GOOD_S: Final = 120.0
BAD_S: Final = 10.0
_PATIENCE_S: Final = 1.0  # of a call whose token was good a moment ago; the review goes on behind it
_MOST_GOOD: Final = 20_000  # one for each pod, and for each renewal within two minutes
_MOST_BAD: Final = 1_000
_AT_ONCE: Final = 32  # requests on their way
_MOST_WAITING: Final = 1_000

_EXTRA: Final = "authentication.kubernetes.io/"
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True)
class _Known:
    """An answer; `ends` is when the token itself does (Unix time)."""

    caller: Caller
    until: float
    ends: float


class TokenReviews:
    """An `Authenticator` of tokens with the audience `timeslice`.

    A token that was good stays good while the API server is away, until its own end: nobody loses a lease because
    nobody can be asked.

    Args:
        api: the API server; its time limit is that of a review.
        clock: Unix time.
    """

    def __init__(self, api: ApiServer, *, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._clock = clock
        self._good: OrderedDict[bytes, _Known] = OrderedDict()
        self._bad: OrderedDict[bytes, tuple[Unauthenticated, float]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Caller]] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def caller(self, token: str) -> Caller:
        """See `Authenticator`."""
        digest, now = sha256(token.encode()).digest(), self._clock()
        known = self._good.get(digest)
        if known and now < known.until:
            return known.caller
        if (bad := self._bad.get(digest)) and now < bad[1]:
            raise _again(bad[0])
        still_good = known is not None and now < known.ends
        try:
            async with asyncio.timeout(_PATIENCE_S if still_good else None):
                return await self._asked(digest, token)
        except (Unavailable, TimeoutError):
            if known is None or not still_good:
                raise
            self._good[digest] = replace(known, until=min(now + BAD_S, known.ends))
            return known.caller

    async def _asked(self, digest: bytes, token: str) -> Caller:
        """One request for all calls that present the token now."""
        task = self._asking.get(digest)
        if task is None:
            said = _said_by(token)
            if len(self._asking) >= _MOST_WAITING:
                raise Unavailable("too many tokens are being looked at; try again")
            task = self._asking[digest] = asyncio.create_task(self._review(digest, token, said))
            task.add_done_callback(lambda done: self._end(digest, done))
        return await asyncio.shield(task)

    def _end(self, digest: bytes, task: asyncio.Task[Caller]) -> None:
        del self._asking[digest]
        if not task.cancelled():
            task.exception()  # whoever waited for it has it; nobody may have

    async def _review(self, digest: bytes, token: str, said: Raw) -> Caller:
        status = at(await self._ask(token), "status")
        now = self._clock()
        if not status.get("authenticated") or AUDIENCE not in (status.get("audiences") or ()):
            error = _refusal(said, now)
            self._good.pop(digest, None)
            _keep(self._bad, digest, (error, now + BAD_S), _MOST_BAD)
            raise error
        caller, ends = _caller(at(status, "user")), _number(said.get("exp"), now + GOOD_S)
        _keep(self._good, digest, _Known(caller, min(now + GOOD_S, ends), ends), _MOST_GOOD)
        return caller

    async def _ask(self, token: str) -> Raw:
        spec = {"token": token, "audiences": [AUDIENCE]}
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": spec}
        async with self._room:
            try:
                return await self._api.create(TOKEN_REVIEWS, body)
            except ApiServerError as error:
                raise Unavailable(f"nobody can tell now whose token this is: {error}") from error


def _said_by(token: str) -> Raw:
    """What a token says of itself, which proves nothing, and saves the API server from what is no token for us.

    RFC 7519; Kubernetes' claims are described in its documentation of service accounts.

    Raises:
        Unauthenticated: it is no service account's token, or for somebody else.
    """
    try:
        _, payload, _ = token.split(".")
        # As floats, since one may be too large to become one: 1e999 is inf, and 10**999 an OverflowError later on.
        said = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), parse_int=float)
    except (ValueError, binascii.Error, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Unauthenticated("the token is not that of a service account", hint=_HINT)
    audiences = said.get("aud")
    audiences = audiences if isinstance(audiences, list) else [audiences]
    if AUDIENCE not in audiences:
        named = ", ".join(_shown(each) for each in audiences[:3])
        raise Unauthenticated(f"the token is for audience {named}, not for {AUDIENCE}", hint=_HINT)
    return said


_HINT: Final = f"pods of a claim get one by themselves; a person: kubectl create token ACCOUNT --audience {AUDIENCE}"


def _refusal(said: Raw, now: float) -> Unauthenticated:
    if (ended := now - _number(said.get("exp"), now + 1)) >= 0:
        error = Unauthenticated(
            f"the token ended {ended:.0f} s ago", hint="its file has to be renewed; it is read again"
        )
        error.retryable = True  # whoever renews it may be late
        return error
    return Unauthenticated("the API server does not vouch for this token: it is forged, or its pod is gone", hint=_HINT)


def _again(error: Unauthenticated) -> Unauthenticated:
    """One of its own for each call: an exception that is raised many times would gather all their frames."""
    other = Unauthenticated(error.message, hint=error.hint)
    other.retryable = error.retryable
    return other


def _shown(audience: Any) -> str:
    """An audience, of which a stranger may have made anything, such as half of a character, or a line of its own."""
    return audience if isinstance(audience, str) and len(audience) <= 253 and audience.isprintable() else "(no name)"


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def _caller(user: Raw) -> Caller:
    name = str(user.get("username", ""))
    extra: Mapping[str, list[str]] = at(user, "extra")
    said = {key.removeprefix(_EXTRA): values[0] for key, values in extra.items() if key.startswith(_EXTRA) and values}
    namespace = name.removeprefix(_ACCOUNT).partition(":")[0] if name.startswith(_ACCOUNT) else ""
    is_pod = bool(namespace and said.get("pod-uid"))
    return Caller(
        Kind.POD if is_pod else Kind.USER,
        f"pod {namespace}/{said.get('pod-name', '')}" if is_pod else f"user {name}",
        node=said.get("node-name", "") if is_pod else "",
        namespace=namespace if is_pod else "",
        pod_uid=said.get("pod-uid", "") if is_pod else "",
        user=name,
        roles=tuple(user.get("groups") or ()),
        extra=tuple((key, tuple(values)) for key, values in sorted(extra.items())),
    )


def _keep(kept: OrderedDict[bytes, Any], digest: bytes, value: Any, most: int) -> None:
    kept[digest] = value
    kept.move_to_end(digest)
    while len(kept) > most:
        kept.popitem(last=False)
