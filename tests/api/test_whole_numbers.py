from __future__ import annotations

import pytest
from timeslice_api.addresses import checked_address
from timeslice_api.errors import ConfigError
from timeslice_api.whole_numbers import PORTS, whole_number


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("7070", 7070), ("65535", 65535), ("00080", 80)])
def test_ascii_digits_are_a_number(text: str, number: int) -> None:
    assert whole_number(text, PORTS) == number


@pytest.mark.parametrize("text", ["", "65536", "-1", "+1", "1.0", " 1", "1\n", "1_0", "²", "٣", "１", "9" * 5000])
def test_any_other_text_and_what_is_too_great_is_none(text: str) -> None:
    assert whole_number(text, PORTS) is None
    with pytest.raises(ConfigError):
        checked_address(f"host:{text}")
