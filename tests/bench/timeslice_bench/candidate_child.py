"""One of two orchestrators as they are shipped: stands by for a state directory, or for a Lease at an API server."""

from __future__ import annotations

import argparse
import asyncio
import logging
from pathlib import Path

from timeslice_orchestrator.config import KubernetesConfig, OrchestratorConfig
from timeslice_orchestrator.kubernetes.orchestrator import KubernetesOrchestrator
from timeslice_orchestrator.server import Orchestrator

from timeslice_bench.lifeline import lines, say


async def main(service: Orchestrator | KubernetesOrchestrator) -> None:
    """Stands by until the parent lets go. Answers each line when it leads."""
    starting = asyncio.create_task(service.start())
    say(stands_by=True)
    try:
        async for _ in lines():
            await starting
            say(leads=True)
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await service.stop()


def _service(arguments: argparse.Namespace) -> Orchestrator | KubernetesOrchestrator:
    listen = (arguments.listen,)
    if arguments.state_dir:
        return Orchestrator(OrchestratorConfig(arguments.state_dir, listen, standby=True))
    return KubernetesOrchestrator(
        KubernetesConfig("timeslice", listen, "bench", lease_s=arguments.lease_s, kubeconfig=arguments.kubeconfig)
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--state-dir", type=Path)
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--lease-s", type=float, default=0.0)
    asyncio.run(main(_service(parser.parse_args())))
