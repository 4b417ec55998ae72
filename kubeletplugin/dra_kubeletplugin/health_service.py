"""The gRPC service that streams the health of devices, in both versions (k8s.io/kubelet, pkg/apis/dra-health)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from dra_kubeletplugin.health import DeviceHealth

_LONGEST_MESSAGE = 1024


class HealthFeed:
    """The last report, for every stream that follows.

    A report is sent once to each stream, as often as the driver makes one: kubelet takes silence for a monitor that has
    died, so nothing here may repeat it.
    """

    def __init__(self) -> None:
        self._report: tuple[DeviceHealth, ...] = ()
        self._count = 0
        self._news = asyncio.Event()
        self._closed = False

    def report(self, devices: Sequence[DeviceHealth]) -> None:
        """The health of all devices, now."""
        self._report = tuple(devices)
        self._count += 1
        self._tell()

    def close(self) -> None:
        """All streams end."""
        self._closed = True
        self._tell()

    async def reports(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """The last report, if there was one, and those that follow; a slow reader gets the newest."""
        sent = 0
        while not self._closed:
            news = self._news
            if self._count > sent:
                sent = self._count
                yield self._report
            else:
                await news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class HealthService:
    """The servicer of one version, which the module of its messages tells."""

    def __init__(self, feed: HealthFeed, messages: Any) -> None:
        self._feed = feed
        self._messages = messages

    async def NodeWatchResources(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  as on the wire
        """Each message has all devices of the driver. Ends when the plugin does."""
        async for report in self._feed.reports():
            yield self._messages.NodeWatchResourcesResponse(devices=[self._device(health) for health in report])

    def _device(self, health: DeviceHealth) -> Any:
        return self._messages.DeviceHealth(
            device=self._messages.DeviceIdentifier(pool_name=health.pool, device_name=health.device),
            health=health.health.value,
            last_updated_time=int(health.checked_at),
            health_check_timeout_seconds=health.timeout_s,
            message=health.message[:_LONGEST_MESSAGE],
        )
