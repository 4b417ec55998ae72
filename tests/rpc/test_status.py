"""Errors over the wire: what a client raises is what the server raised."""

from __future__ import annotations

import grpc.aio
import pytest
from timeslice_api import errors, status

KINDS = [errors.GroupNotFound, errors.LeaseLost, errors.Unavailable, errors.OperationFailed]


def sent(error: errors.TimesliceError) -> errors.TimesliceError:
    """As it comes out at the other end."""
    trailer = grpc.aio.Metadata(*status.trailer_of(error))
    return status.from_rpc(grpc.aio.AioRpcError(status.code_of(error), grpc.aio.Metadata(), trailer))


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
