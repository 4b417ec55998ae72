"""The groups file: what a good one means, and that a bad one is told with line and field."""

from __future__ import annotations

import textwrap

import pytest
from timeslice_api.errors import ConfigError
from timeslice_orchestrator.discovery.groups_file import FileGroup, parsed


def read(text: str) -> tuple[FileGroup, ...]:
    return parsed(textwrap.dedent(text), "groups.yaml")


def test_groups_have_devices_by_node_and_may_name_their_jobs() -> None:
    groups = read(
        """\
        groups:
          trainer-group:
            jobs: [job-a, job-b]
            devices:
              node-1: [GPU-0, GPU-1]
              node-2: all
          sampler-group:
            devices:
              node-1:
                - GPU-2
        """
    )
    assert groups == (
        FileGroup("trainer-group", (("node-1", ("GPU-0", "GPU-1")), ("node-2", None)), frozenset({"job-a", "job-b"})),
        FileGroup("sampler-group", (("node-1", ("GPU-2",)),), None),
    )


def test_a_file_without_groups_is_good() -> None:
    assert read("groups: {}") == ()


BAD = {
    "empty file": ("", "groups.yaml is empty"),
    "only a comment": ("# nothing\n", "groups.yaml is empty"),
    "broken YAML": ("groups:\n  a: [1, 2\n", "groups.yaml line 3: expected ',' or ']'"),
    "tab": ("groups:\n\ta: 1\n", "groups.yaml line 2: found character '\\t' that cannot start any token"),
    "a list at the top": ("- a\n", "groups.yaml line 1: the file must be a mapping"),
    "unknown key at the top": (
        "groups: {}\nnodes: {}\n",
        "groups.yaml line 2: nodes is not known here; known: groups",
    ),
    "no groups": ("{}\n", "groups.yaml line 1: groups is missing"),
    "groups as a list": ("groups: [a]\n", "groups.yaml line 1: groups must be a mapping"),
    "a bad group name": (
        "groups:\n  a b:\n    devices: {}\n",
        "groups.yaml line 2: groups.a b 'a b' is not a name of letters",
    ),
    "a group twice": (
        "groups:\n  a:\n    devices: {}\n  a:\n    devices: {}\n",
        "groups.yaml line 4: groups.a is there twice; first in line 2",
    ),
    "no devices": ("groups:\n  a:\n    jobs: [j]\n", "groups.yaml line 3: groups.a.devices is missing"),
    "unknown key in a group": (
        "groups:\n  a:\n    devices: {}\n    device: x\n",
        "groups.yaml line 4: groups.a.device is not known here; known: jobs, devices",
    ),
    "jobs as a string": (
        "groups:\n  a:\n    jobs: job-a\n    devices: {}\n",
        "groups.yaml line 3: groups.a.jobs must be a list",
    ),
    "a number for a job": (
        "groups:\n  a:\n    jobs: [12]\n    devices: {}\n",
        "groups.yaml line 3: groups.a.jobs[0] '12' must be a string: put it in quotes",
    ),
    "a bad job name": (
        "groups:\n  a:\n    jobs: [ok, 'not ok']\n    devices: {}\n",
        "groups.yaml line 3: groups.a.jobs[1] 'not ok' is not a name",
    ),
    "devices as a list": (
        "groups:\n  a:\n    devices: [GPU-0]\n",
        "groups.yaml line 3: groups.a.devices must be a mapping",
    ),
    "a word other than all": (
        "groups:\n  a:\n    devices:\n      n: every\n",
        "groups.yaml line 4: groups.a.devices.n is 'every'; it must be a list of device ids, or 'all'",
    ),
    "an index for a device": (
        "groups:\n  a:\n    devices:\n      n:\n        - GPU-0\n        - 1\n",
        "groups.yaml line 6: groups.a.devices.n[1] '1' must be a string: put it in quotes",
    ),
    "a nested list": (
        "groups:\n  a:\n    devices:\n      n: [[GPU-0]]\n",
        "groups.yaml line 4: groups.a.devices.n[0] must be a string",
    ),
    "an empty device": (
        "groups:\n  a:\n    devices:\n      n: ['']\n",
        "groups.yaml line 4: groups.a.devices.n[0] is empty",
    ),
    "a device in two groups": (
        "groups:\n  a:\n    devices:\n      n: [GPU-0]\n  b:\n    devices:\n      n: [GPU-1, GPU-0]\n",
        "groups.yaml line 7: groups.b.devices.n[1] GPU-0 is in groups.a.devices.n[0] (line 4) already",
    ),
    "a device twice in a group": (
        "groups:\n  a:\n    devices:\n      n: [GPU-0, GPU-0]\n",
        "groups.yaml line 4: groups.a.devices.n[1] GPU-0 is in groups.a.devices.n[0] (line 4) already",
    ),
    "all of a node twice": (
        "groups:\n  a:\n    devices:\n      n: all\n  b:\n    devices:\n      n: all\n",
        "groups.yaml line 7: groups.b.devices.n all is in groups.a.devices.n (line 4) already",
    ),
    "a bad node name": (
        "groups:\n  a:\n    devices:\n      /n: all\n",
        "groups.yaml line 4: groups.a.devices./n '/n' is not a name",
    ),
    "a null": ("groups:\n  a:\n", "groups.yaml line 2: groups.a must be a mapping"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_told_with_line_and_field(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(text, "groups.yaml")
    assert message in caught.value.message


def test_a_list_that_contains_itself_is_an_error_like_others() -> None:
    with pytest.raises(ConfigError, match="line 4: an alias is not known here"):
        read("groups:\n  a:\n    devices:\n      n: &x [*x]\n")
