"""Whole numbers in texts that somebody else wrote."""

from __future__ import annotations

PORTS = 65535  # the greatest


def whole_number(text: str, most: int) -> int | None:
    """The number that a text of ASCII digits writes; None for any other text, and for more than `most`.

    `int` alone takes the digits of every script and blanks around them, and fails at some that `str.isdigit` calls so,
    and at 4,301 digits.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None
