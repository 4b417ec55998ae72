"""What strangers present as a service account's token: one whom nobody vouches for is told so, whatever it says of
itself, in words that fit into an answer and into one line of the log."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from spoiling import ANYTHING, DEEP, LIMIT, TEXTS, fuzzed, spoilt
from timeslice_api import status
from timeslice_api.errors import Unauthenticated
from timeslice_orchestrator.kubernetes.token_reviews import TokenReviews

pytestmark = [LIMIT]

CLAIMS = {"aud": ["timeslice"], "exp": 1_800_000_000, "iat": 1_700_000_000}
FOR_US = {"aud": ["timeslice"]}


class Nobody:
    """An API server that vouches for no token."""

    async def create(self, *_: Any) -> dict[str, Any]:
        return {"status": {"error": "the token is not good"}}


def token_of(payload: str) -> str:
    return f"e30.{base64.urlsafe_b64encode(payload.encode()).decode().rstrip('=')}.signature"


SAID = st.one_of(
    spoilt(CLAIMS).map(json.dumps),
    ANYTHING.map(lambda value: json.dumps(FOR_US | {"exp": value})),
    ANYTHING.map(lambda value: json.dumps({"aud": value})),
    DEEP,
    TEXTS,
)


@fuzzed
@given(st.one_of(SAID.map(token_of), TEXTS))
@example(token_of(json.dumps(FOR_US | {"exp": 10**400})))
@example(token_of('{"aud": "timeslice", "exp": -Infinity}'))
@example(token_of('{"aud": ["\\ud800"]}'))
@example(token_of(json.dumps({"aud": ["x\nINFO timeslice.audit audit: release group=g job=any by user root: done"]})))
async def test_a_token_that_nobody_vouches_for_is_refused_whatever_it_says_of_itself(token: str) -> None:
    api: Any = Nobody()
    with pytest.raises(Unauthenticated) as refused:
        await TokenReviews(api).caller(token)
    assert refused.value.message.isprintable()
    assert status.of(refused.value).trailer
