"""Two jobs of one process each that take turns on one device."""

from __future__ import annotations

from cluster import Cluster, Job


def parked_and_holding(cluster: Cluster) -> tuple[Job, Job]:
    """A job whose state is parked, and one that holds."""
    first, second = cluster.job("job-a"), cluster.job("job-b")
    first.does("acquire", "fill", "check")
    cluster.waits(second)
    first.does("yield")
    assert second.hears() == "done acquire"
    second.does("fill", "check")
    return first, second


def go_on(cluster: Cluster, holder: Job, other: Job) -> None:
    """Both find what they have left on the device, one after the other."""
    assert holder.hears() == "done acquire"
    holder.does("check")
    cluster.waits(other)
    holder.does("yield")
    assert other.hears() == "done acquire"
    other.does("check", "yield")
