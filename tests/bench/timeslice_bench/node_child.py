"""The node as it is shipped, in a process of its own, on an emulated GPU."""

from __future__ import annotations

import argparse
import asyncio
import logging
from pathlib import Path

from timeslice_driver.config import NodeConfig
from timeslice_driver.node import Node

from timeslice_bench.lifeline import say, until_let_go


async def main(config: NodeConfig) -> None:
    """Serves until the parent lets go."""
    node = Node(config)
    await node.start()
    try:
        say(socket=str(config.socket))
        await until_let_go()
    finally:
        await node.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    parser = argparse.ArgumentParser()
    for path in ("--state-dir", "--socket", "--dev-root"):
        parser.add_argument(path, type=Path, required=True)
    parser.add_argument("--orchestrator", default="")
    parser.add_argument("--libcuda", required=True)
    parser.add_argument("--libnvml", required=True)
    asyncio.run(main(NodeConfig(name="bench", **vars(parser.parse_args()))))
