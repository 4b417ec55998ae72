from __future__ import annotations

import re

import pytest
from timeslice_driver.backends import cuda_errors
from timeslice_driver.backends.cuda_errors import fault_of

# Codes of CUresult that a checkpoint call can end with, and the reason each is told under.
REASONS = {
    1: "NotACudaProcess",
    2: "NoMemory",
    3: "NotInitialized",
    34: "StubLibrary",
    46: "DeviceUnavailable",
    100: "NoDevice",
    201: "InvalidContext",
    304: "OperatingSystem",
    401: "IllegalState",
    600: "LockTimeout",
    800: "NotPermitted",
    801: "NotSupported",
    **dict.fromkeys(range(805, 811), "MpsClient"),
    900: "StreamCapture",
    909: "DriverTimeout",
    999: "DriverUnknown",
}


@pytest.mark.parametrize(("code", "reason"), REASONS.items())
def test_every_code_has_a_reason_and_a_sentence_with_code_step_and_process(code: int, reason: str) -> None:
    fault = fault_of(code, step="checkpoint", pid=4711, detail="CUDA 12.8")
    assert fault.reason == reason
    assert re.fullmatch(rf"cannot checkpoint process 4711: .+ \(CUDA error {code} \w+\) \[CUDA 12\.8\]", fault.message)


def test_the_table_has_no_code_that_nobody_asked_for() -> None:
    assert set(cuda_errors.MEANINGS) == set(REASONS)


def test_an_unknown_code_is_told_by_its_number() -> None:
    fault = fault_of(12345, step="lock", pid=1)
    assert (fault.reason, fault.retryable) == ("DriverError", False)
    assert "12345" in fault.message


def test_only_what_passes_by_itself_may_be_tried_again() -> None:
    again = {code for code in REASONS if fault_of(code, step="lock", pid=1).retryable}
    assert again == {600, 900, 909}
