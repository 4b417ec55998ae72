"""Names that users, the chart, the nodes and the orchestrator agree on."""

from __future__ import annotations

import re
from typing import Final

from timeslice_api.errors import ConfigError

DRIVER: Final = "gpu.timeslice.dev"
API_GROUP: Final = "timeslice.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{API_GROUP}/{VERSION}"
KIND_GROUP: Final = "TimesliceGroup"
PLURAL_GROUP: Final = "timeslicegroups"
KIND_CONFIG: Final = "TimesliceConfig"

LABEL_JOB: Final = "timeslice.dev/job"  # on a claim (through its template's metadata) or on a pod
LABEL_GROUP: Final = "timeslice.dev/group"
FINALIZER: Final = "timeslice.dev/claims"  # on a TimesliceGroup: it goes when no claim is allocated in it
TAINT_DRAINING: Final = "timeslice.dev/draining"  # on the lanes of a group that is being deleted
TAINT_UNHEALTHY: Final = "timeslice.dev/unhealthy"
CLASS_SUFFIX: Final = ".timeslice.dev"

# Attributes of a device, all of them on every device in every mode: CEL fails on one that is missing.
ATTRIBUTE_UUID: Final = "uuid"
ATTRIBUTE_GROUP: Final = "group"  # empty in slots mode
ATTRIBUTE_MODE: Final = "mode"
ATTRIBUTE_SLOT: Final = "slot"  # its number; -1 of lanes
MODE_LANES: Final = "lanes"
MODE_SLOTS: Final = "slots"
CAPACITY_SEATS: Final = "seats"
CAPACITY_HOST_MEMORY: Final = "hostMemory"
CAPACITY_JOB_PREFIX: Final = "job_"
COUNTER_LANE: Final = "lane"

MAX_GROUP_NAME: Final = 40  # characters, so that `gpu-<minor>-<group>` stays a DNS label
MAX_JOBS: Final = 16  # of spec.jobs: attributes and capacities of a device together may be 32
MAX_SEATS: Final = 16

# A DNS label; `slot-3` would make the lane gpu-0-slot-3, which is the name of a slot.
_GROUP = re.compile(r"(?!slot-[0-9]+$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KEY_HALF = 14  # of a long job name each end gives so much; job_ and both are the 32 characters a capacity may have


def capacity_key(job: str) -> str:
    """The name of the capacity that keeps a job off a device where it is already: `job_` and the job's name as a C
    identifier, shortened in the middle to 32 characters in all.

    The mutating admission policy computes the same in CEL. Two jobs with one key merely never share a device.
    """
    plain = job.replace("-", "_").replace(".", "_")
    return CAPACITY_JOB_PREFIX + (plain if len(plain) <= 2 * _KEY_HALF else plain[:_KEY_HALF] + plain[-_KEY_HALF:])


def class_name(group: str) -> str:
    """The DeviceClass of a group."""
    return group + CLASS_SUFFIX


def group_of_class(device_class: str) -> str | None:
    """The group whose DeviceClass this is; None for a class that is not one of ours."""
    group = device_class.removesuffix(CLASS_SUFFIX)
    return group if group != device_class and _GROUP.fullmatch(group) else None


def checked_group_name(value: str, field: str) -> str:
    """The value, when a TimesliceGroup can have that name.

    Raises:
        ConfigError: it is no DNS label of at most 40 characters, or is `slot-<number>`.
    """
    if len(value) > MAX_GROUP_NAME:
        raise ConfigError(f"{field} {value!r} has {len(value)} characters; a group's name may have {MAX_GROUP_NAME}")
    if not _GROUP.fullmatch(value):
        hint = "small letters, digits and '-' inside; not slot-<number>, which is how a GPU's slots are called"
        raise ConfigError(f"{field} {value!r} is not the name of a group", hint=hint)
    return value


def checked_job_name(value: str, field: str) -> str:
    """The value, when a job on Kubernetes can have that name: it has to be the value of a label.

    Raises:
        ConfigError: it is empty, longer than 63 characters, or has other characters than letters, digits, `-_.`
            between a first and last letter or digit.
    """
    if not _LABEL_VALUE.fullmatch(value):
        hint = "at most 63 letters, digits and '-', '_', '.' inside, as in the label timeslice.dev/job"
        raise ConfigError(f"{field} {value!r} is not the name of a job", hint=hint)
    return value
