"""The example driver with what it leaves out: its dice are described to containers, and their health is reported.

usage: described_dice.py NODE DICE --kubeconfig FILE        After SIGUSR1 its first die is ill.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples/dra-driver"))

from dra_kubeletplugin import Claim, DeviceHealth, Health, Plugin, Pool, PreparedDevice, PrepareError
from dra_kubeletplugin.apiserver import ApiServer

from driver import NAME, DiceDriver  # type: ignore[attr-defined]  # mypy sees the folder of that name

ATTRIBUTES = {"sides": {"int": 6}}
_EVERY_S = 5.0


class DescribedDice(DiceDriver):  # type: ignore[misc]
    """Says of every die how many sides it has."""

    async def prepare(self, claims: Sequence[Claim]) -> Mapping[str, Sequence[PreparedDevice] | PrepareError]:
        made = await super().prepare(claims)
        return {
            uid: dice if isinstance(dice, PrepareError) else list(map(_described, dice)) for uid, dice in made.items()
        }


def _described(die: PreparedDevice) -> PreparedDevice:
    return replace(die, metadata=ATTRIBUTES)


async def main(node: str, dice: int, kubeconfig: str) -> None:
    driver, ill = DescribedDice(Path("/var/run/cdi")), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, driver.end.set)
    loop.add_signal_handler(signal.SIGUSR1, ill.set)
    names = [f"die-{number}" for number in range(dice)]
    async with (
        await ApiServer.connect(kubeconfig=kubeconfig) as api,
        Plugin(NAME, driver, node, api, health=True, metadata=True) as plugin,
    ):
        plugin.publish({node: Pool.of([{"name": name, "attributes": ATTRIBUTES} for name in names])})
        while not driver.end.is_set():
            well = [DeviceHealth(node, name, Health.HEALTHY) for name in names]
            worn = DeviceHealth(node, names[0], Health.UNHEALTHY, "its corners are worn")
            plugin.report_health([worn, *well[1:]] if ill.is_set() else well)
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY_S):
                    await driver.end.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("node")
    parser.add_argument("dice", type=int)
    parser.add_argument("--kubeconfig", required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(options.node, options.dice, options.kubeconfig))
