"""TimesliceGroup: a named set of accelerators that jobs take turns on, as a cluster-scoped object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from timeslice_api.errors import ConfigError
from timeslice_api.kinds import names
from timeslice_api.kinds.decoding import Lenient, Strict, checker, decoded
from timeslice_api.kinds.quantity import bytes_of


def _at_least_1mi(value: str | int, field: str) -> str | int:
    if bytes_of(value, field) < 1024**2:
        raise ConfigError(f"{field} {value!r} is less than 1Mi")
    return value


# JSON has lists; a frozen model has tuples.
Job = Annotated[str, AfterValidator(checker(names.checked_job_name))]
Jobs = Annotated[tuple[Job, ...], Field(strict=False, max_length=names.MAX_JOBS)]
Names = Annotated[tuple[str, ...], Field(strict=False)]
Quantity = Annotated[str | int, BeforeValidator(checker(_at_least_1mi))]


class LeaseTimes(Strict):
    """How long the group's leases last (seconds).

    Attributes:
        ttl_seconds: a lease that is not renewed for so long is suspect.
        grace_seconds: a suspect lease of a job whose processes live is kept for so long.
    """

    ttl_seconds: int | None = Field(default=None, ge=1, le=3600)
    grace_seconds: int | None = Field(default=None, ge=0, le=3600)


class GroupSpec(Strict):
    """What a person asks for.

    Attributes:
        seats: jobs that may share one GPU.
        jobs: who may join; None: any job of an admitted namespace.
        namespaces: whose claims may use the group; None: all.
        node_selector: labels of the nodes that offer their GPUs to the group; empty: all nodes.
        host_memory_per_gpu: quantity; what snapshots may take for each GPU in host memory; None: the node's share.
        lease: times that differ from the orchestrator's.
        policy: the order in which waiting jobs are served.
    """

    seats: int = Field(default=2, ge=1, le=names.MAX_SEATS)
    jobs: Jobs | None = None
    namespaces: Names | None = None
    node_selector: dict[str, str] = Field(default_factory=dict)
    host_memory_per_gpu: Quantity | None = Field(default=None, alias="hostMemoryPerGPU")
    lease: LeaseTimes = LeaseTimes()
    policy: Literal["fifo"] = "fifo"

    @property
    def host_memory_bytes(self) -> int | None:
        """`host_memory_per_gpu` in bytes."""
        return None if self.host_memory_per_gpu is None else bytes_of(self.host_memory_per_gpu, "hostMemoryPerGPU")

    def admits_job(self, job: str) -> bool:
        """Whether the job may join."""
        return self.jobs is None or job in self.jobs

    def admits_namespace(self, namespace: str) -> bool:
        """Whether claims of the namespace may use the group."""
        return self.namespaces is None or namespace in self.namespaces

    def selects(self, node_labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels offers its GPUs to the group."""
        return all(node_labels.get(key) == value for key, value in self.node_selector.items())


class Device(Lenient):
    """A GPU of the group."""

    node: str
    device: str


class Condition(Lenient):
    """One of the usual conditions; the time as the API server has it."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class GroupStatus(Lenient):
    """What the orchestrator reports. `records` is what it needs to continue after a restart, in its own form.

    Attributes:
        jobs: those that have claims now; nodes publish capacities for them beside spec.jobs.
        holder: for people: "job-a", or "job-a,job-b" on devices of their own.
        waiting: requests in the queue.
        duty_cycle: for people: "61%".
    """

    jobs: Names = ()
    devices: Annotated[tuple[Device, ...], Field(strict=False)] = ()
    device_count: int = 0
    holder: str = ""
    waiting: int = 0
    duty_cycle: str = ""
    members: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = ()
    conditions: Annotated[tuple[Condition, ...], Field(strict=False)] = ()
    records: dict[str, Any] = Field(default_factory=dict)


class _Metadata(Lenient):
    name: Annotated[str, AfterValidator(checker(names.checked_group_name))]
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    finalizers: Names = ()


class TimesliceGroup(Strict):
    """The object. `api_version` and `kind` may be missing, as they are in the items of a list."""

    api_version: Literal["timeslice.dev/v1alpha1"] = "timeslice.dev/v1alpha1"
    kind: Literal["TimesliceGroup"] = "TimesliceGroup"
    metadata: _Metadata
    spec: GroupSpec = GroupSpec()
    status: GroupStatus = GroupStatus()

    @property
    def name(self) -> str:
        """The group's id."""
        return self.metadata.name

    @property
    def deleted(self) -> bool:
        """Whether it is being deleted: it takes no new claims and goes with its last one."""
        return self.metadata.deletion_timestamp is not None

    @property
    def jobs(self) -> tuple[str, ...]:
        """All jobs that a node has to publish a capacity for: spec.jobs, then the others of status.jobs."""
        return tuple(dict.fromkeys((*(self.spec.jobs or ()), *self.status.jobs)))


def decode_group(raw: Any) -> TimesliceGroup:
    """The raw object of the API server.

    Raises:
        ConfigError: names the field that is wrong. The CRD's schema refuses the same, so this meets another version's.
    """
    metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return decoded(TimesliceGroup, raw, f"TimesliceGroup {name}".rstrip())
