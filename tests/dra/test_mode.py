from __future__ import annotations

import pytest
from timeslice_driver.dra.mode import Choice, choose

NEW = (1, 37, 2)


@pytest.mark.parametrize(
    ("version", "mode"), [((1, 34, 2), "slots"), ((1, 36, 2), "slots"), ((1, 36, 3), "lanes"), (NEW, "lanes")]
)
def test_lanes_are_for_servers_whose_allocator_counts_them_right(version: tuple[int, int, int], mode: str) -> None:
    choice = choose("auto", version=version)
    assert choice.mode == mode
    assert bool(choice.why) == (mode == "slots")


def test_a_server_that_dropped_what_lanes_need_gets_slots_and_people_are_told_which_gates() -> None:
    choice = choose("auto", version=NEW, dropped=["consumesCounters", "taints"])
    assert choice.mode == "slots"
    assert "dropped consumesCounters" in choice.why
    assert "DRAPartitionableDevices" in choice.why


def test_a_dropped_taint_alone_is_no_reason_for_slots() -> None:
    assert choose("auto", version=NEW, dropped=["taints"]) == Choice("lanes")


def test_the_mode_does_not_change_while_claims_are_prepared() -> None:
    choice = choose("auto", version=NEW, in_use="slots")
    assert choice.mode == "slots"
    assert "when they have gone: lanes" in choice.why
    assert choose("auto", version=(1, 35, 0), in_use="lanes").mode == "lanes"


def test_a_configured_mode_is_obeyed_whatever_the_version() -> None:
    assert choose("slots", version=NEW).mode == "slots"
    assert choose("lanes", version=(1, 34, 0)) == Choice("lanes")
