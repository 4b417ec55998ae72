"""Errors over the wire: what a client raises is what the server raised."""

from __future__ import annotations

import grpc.aio
import pytest
from timeslice_api import errors, status

KINDS = [errors.GroupNotFound, errors.LeaseLost, errors.Unavailable, errors.OperationFailed]


def sent(error: errors.TimesliceError) -> errors.TimesliceError:
    """As it comes out at the other end."""
    code, details, trailer = status.of(error)
    return status.from_rpc(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailer), details))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_arrives_as_it_was_raised(kind: type[errors.TimesliceError]) -> None:
    error = kind("it is so", hint="do that", job_id="a", group_id="g")
    error.retryable = True
    arrived = sent(error)
    assert type(arrived) is kind
    assert vars(arrived) == vars(error)


def test_a_failed_operation_arrives_with_its_reason() -> None:
    arrived = sent(errors.OperationFailed("no room", reason="HostMemory"))
    assert isinstance(arrived, errors.OperationFailed)
    assert (arrived.reason, arrived.message) == ("HostMemory", "no room")


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f300", "\ud800"])
def test_an_error_is_never_too_long_for_the_callers_metadata(letter: str) -> None:
    long = letter * 100_000
    error = errors.OperationFailed(long, hint=long, job_id=long, group_id=long, reason="HostMemory")
    _, details, [(_, detail)] = status.of(error)
    assert 3 * len(details.encode()) + len(detail) * 4 // 3 < 8 << 10  # percent-encoding, base64
    assert sent(error).message == details
    assert details.endswith("...")


def test_an_error_about_a_file_whose_name_is_no_text_arrives_too() -> None:
    arrived = sent(errors.OperationFailed("no such file: \udcff", hint="mend \udcff", job_id="\udcff", reason="Disk"))
    assert (arrived.message, arrived.hint, arrived.job_id) == ("no such file: ?", "mend ?", "?")
