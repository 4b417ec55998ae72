from __future__ import annotations

import pytest
from timeslice_driver.fencing import Watermark

SEEN = Watermark(epoch=5, token=7, highest_token=9)


@pytest.mark.parametrize(
    ("epoch", "token", "reason"),
    [
        (5, 7, None),  # the same hand-off's next command
        (5, 8, None),
        (5, 6, "StaleToken"),
        (4, 99, "StaleEpoch"),
        (6, 1, None),  # a new leader's tokens are its own
    ],
)
def test_what_is_older_than_what_was_seen_is_refused(epoch: int, token: int, reason: str | None) -> None:
    fault = SEEN.refuse(epoch, token)
    assert (fault.reason if fault else None) == reason


@pytest.mark.parametrize(
    ("epoch", "token", "after"),
    [(5, 8, Watermark(5, 8, 9)), (5, 12, Watermark(5, 12, 12)), (6, 1, Watermark(6, 1, 9))],
)
def test_a_command_that_is_obeyed_raises_the_mark(epoch: int, token: int, after: Watermark) -> None:
    assert SEEN.raised(epoch, token) == after


def test_a_leader_of_a_new_epoch_starts_its_tokens_anew_and_an_old_one_changes_nothing() -> None:
    assert SEEN.led_by(6) == Watermark(6, 0, 9)
    assert SEEN.led_by(5) == SEEN.led_by(4) == SEEN
