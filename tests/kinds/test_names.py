"""Names of classes and capacities, and quantities."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import bytes_of, capacity_key, class_name, group_of_class
from timeslice_api.kinds.names import checked_group_name, checked_job_name

JOB_NAMES = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True)


@given(JOB_NAMES)
def test_every_job_has_a_capacity_that_kubernetes_takes(job: str) -> None:
    assert checked_job_name(job, "job") == job
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,31}", capacity_key(job))


@pytest.mark.parametrize(
    ("job", "key"),
    [
        ("trainer", "job_trainer"),
        ("team-a.trainer", "job_team_a_trainer"),
        ("j" * 28, "job_" + "j" * 28),
        ("a" * 20 + "b" * 20, "job_" + "a" * 14 + "b" * 14),
    ],
)
def test_the_capacity_of_a_job_is_its_name_shortened_in_the_middle(job: str, key: str) -> None:
    assert capacity_key(job) == key


def test_the_class_of_a_group_leads_back_to_the_group() -> None:
    assert class_name("rl-a") == "rl-a.timeslice.dev"
    assert group_of_class("rl-a.timeslice.dev") == "rl-a"


@pytest.mark.parametrize("other", ["gpu.nvidia.com", ".timeslice.dev", "timeslice.dev", "a.b.timeslice.dev", "rl-a"])
def test_a_class_of_somebody_else_is_of_no_group(other: str) -> None:
    assert group_of_class(other) is None


@pytest.mark.parametrize("name", ["a" * 40, "slot", "slot-1a", "slots-1", "0"])
def test_names_close_to_forbidden_ones_are_good(name: str) -> None:
    assert checked_group_name(name, "name") == name


@pytest.mark.parametrize(
    ("quantity", "size"),
    [
        ("80Gi", 80 * 2**30),
        ("1.5G", 1_500_000_000),
        ("1e3", 1000),
        (12, 12),
        ("100m", 1),
        (".5Ki", 512),
        ("2E", 2 * 10**18),
    ],
)
def test_a_quantity_is_so_many_bytes(quantity: str | int, size: int) -> None:
    assert bytes_of(quantity, "memory") == size


@pytest.mark.parametrize("quantity", ["", "Gi", "1 Gi", "1gi", "1GiB", "0x10", "1e999", "١Gi"])
def test_what_is_no_quantity_is_refused_with_its_field(quantity: str) -> None:
    with pytest.raises(ConfigError, match=f"memory {quantity!r} is not a quantity"):
        bytes_of(quantity, "memory")


def test_the_client_does_not_bring_pydantic_along() -> None:
    program = "import sys, timeslice, timeslice.cli.main; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=10, check=False).returncode == 0
