"""What a failed TLS handshake means, in words: gRPC tells it only in the details of a call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from timeslice_api import names


@dataclass(frozen=True)
class Meaning:
    """What a failed handshake means, in words, and what to do about it."""

    message: str
    hint: str


# By what gRPC says, in its versions from 1.60 on; the first that fits.
_MEANINGS: Final = (
    (r"certificate has expired", Meaning("its certificate has expired", "renew it; a server reads it again by itself")),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        Meaning(
            "its certificate is not of an authority that is trusted here, or has expired",
            f"{names.ENV_TLS_CA} names the file of the authority that made it",
        ),
    ),
    (
        r"Hostname Verification|not in peer certificate",
        Meaning(
            "its certificate is for another name than the one it was dialled by",
            "dial it by a name of its certificate, or have a certificate made for this one",
        ),
    ),
    (
        r"WRONG_VERSION_NUMBER",
        Meaning(
            "it does not speak TLS there",
            f"is the port right? A plain one is for its own machine alone, without {names.ENV_TLS_CA}",
        ),
    ),
    (
        r"failed to connect.*Socket closed",
        Meaning(
            "it hung up at once, as a port does that wants TLS, or a client's certificate",
            f"set {names.ENV_TLS_CA}, or {names.ENV_TLS_CERT} and {names.ENV_TLS_KEY} where it asks for a certificate",
        ),
    ),
)


def meaning_of(details: str) -> Meaning | None:
    """What the details of a failed call say of TLS; None when it failed for another reason."""
    return next((meaning for pattern, meaning in _MEANINGS if re.search(pattern, details, re.DOTALL)), None)
