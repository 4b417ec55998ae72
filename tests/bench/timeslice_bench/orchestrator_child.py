"""The orchestrator as it is shipped, in a process of its own: state on disk, gRPC on a loopback port.

Beside it, in the same event loop, the empty call that every time is compared with.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import logging
from pathlib import Path

from timeslice_api.garbage import collect_all_seldom
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.server import Orchestrator

from timeslice_bench.empty_call import serve_empty_calls
from timeslice_bench.lifeline import say, until_let_go


async def main(state_dir: Path) -> None:
    """Serves until the parent lets go."""
    async with Orchestrator(OrchestratorConfig(state_dir, listen=("127.0.0.1:0",))) as orchestrator:
        collect_all_seldom()
        yardstick, port = await serve_empty_calls()
        say(address=orchestrator.addresses[0], empty_address=f"127.0.0.1:{port}")
        await until_let_go()
        await yardstick.stop(None)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    parser = argparse.ArgumentParser()
    parser.add_argument("state_dir", type=Path)
    parser.add_argument("--profile", type=Path)
    arguments = parser.parse_args()
    profile = cProfile.Profile()
    if arguments.profile:
        profile.enable()
    try:
        asyncio.run(main(arguments.state_dir))
    finally:
        if arguments.profile:
            profile.disable()
            profile.dump_stats(arguments.profile)
