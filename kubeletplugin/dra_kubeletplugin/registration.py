"""How kubelet gets to know the plugin (k8s.io/kubelet, pkg/apis/pluginregistration/v1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from dra_kubeletplugin.faults import RegistrationError
from dra_kubeletplugin.kubelet_api import registration_v1_pb2 as messages

log = logging.getLogger(__name__)

_TYPE = "DRAPlugin"


class Registration:
    """The servicer. kubelet asks within a second, takes the first service of the list that it knows, and says how it
    went; after a failure, and after each of its starts, it asks again.
    """

    def __init__(
        self, driver: str, endpoint: Path, services: Sequence[str], *, failed: Callable[[RegistrationError], None]
    ) -> None:
        self._info = messages.PluginInfo(
            type=_TYPE, name=driver, endpoint=str(endpoint), supported_versions=list(services)
        )
        self._failed = failed
        self.registered = asyncio.Event()

    async def GetInfo(self, request: Any, context: Any) -> messages.PluginInfo:  # noqa: N802  the name on the wire
        """Who this is, and where its service listens."""
        return self._info

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802  the name on the wire
        """Whether kubelet could use it."""
        if request.plugin_registered:
            log.info("registered with kubelet as %s", self._info.name)
            self.registered.set()
            return messages.RegistrationStatusResponse()
        self.registered.clear()
        error = RegistrationError(f"kubelet could not register {self._info.name}: {request.error}")
        log.error("%s", error)
        self._failed(error)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise AssertionError("abort raises")
