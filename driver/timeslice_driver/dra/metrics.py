"""Figures of the kubelet plugin, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from timeslice_driver.dra.refusals import Reason

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 45.0)


class PluginMetrics:
    """What the plugin counts. Labels take few values: reasons of refusal, and the two modes.

    Args:
        registry: where they are shown; one of its own by default.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.registry = registry
        self.claims_prepared = Gauge(
            "timeslice_claims_prepared", "Claims that are prepared on this node now", registry=registry
        )
        self.prepare_seconds = Histogram(
            "timeslice_claim_prepare_seconds", "Time to prepare one claim", buckets=_SECONDS, registry=registry
        )
        self.unprepare_seconds = Histogram(
            "timeslice_claim_unprepare_seconds", "Time to unprepare one claim", buckets=_SECONDS, registry=registry
        )
        self.refusals = Counter(
            "timeslice_claim_refusals", "Calls to prepare that were refused", ["reason"], registry=registry
        )
        for reason in Reason:
            self.refusals.labels(reason.value)
        self.slices_published = Gauge(
            "timeslice_resource_slices_published", "ResourceSlices of this node", registry=registry
        )
        self.devices_published = Gauge(
            "timeslice_devices_published", "Devices in this node's ResourceSlices", ["mode"], registry=registry
        )
        self.unhealthy_gpus = Gauge("timeslice_gpus_unhealthy", "GPUs that take no new claims", registry=registry)
        self.host_memory_bytes = Gauge(
            "timeslice_host_memory_budget_bytes", "Host memory for snapshots on this node", registry=registry
        )
