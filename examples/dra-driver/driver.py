"""A whole DRA driver: every node has some dice, and a container that claims one finds its face in $DIE_<NUMBER>.

usage: driver.py NODE [DICE]        (as a process on the node or as a pod there; --help tells the rest)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from dra_kubeletplugin import Claim, ClaimRef, Plugin, Pool, PreparedDevice, PrepareError
from dra_kubeletplugin.apiserver import ApiServer

NAME = "dice.example.com"
KIND = f"{NAME}/die"


class DiceDriver:
    """Prepares a die by a CDI spec that sets a variable; the specs on disk are its only state."""

    def __init__(self, cdi: Path) -> None:
        cdi.mkdir(parents=True, exist_ok=True)
        self._cdi = cdi
        self.end = asyncio.Event()

    async def prepare(self, claims: Sequence[Claim]) -> Mapping[str, Sequence[PreparedDevice] | PrepareError]:
        return {claim.ref.uid: self._prepare(claim) for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareError | None]:
        for claim in claims:
            self._spec(claim.uid).unlink(missing_ok=True)
        return {claim.uid: None for claim in claims}

    async def failed(self, error: Exception) -> None:
        logging.error("%s", error)

    def _prepare(self, claim: Claim) -> list[PreparedDevice]:
        uid, dice = claim.ref.uid, [result.device for result in claim.results]
        env = {die: f"{die.upper().replace('-', '_')}={random.Random(uid + die).randint(1, 6)}" for die in dice}
        devices = [{"name": f"{uid}-{die}", "containerEdits": {"env": [env[die]]}} for die in dice]
        temporary = self._spec(uid).with_suffix(".new")
        temporary.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": KIND, "devices": devices}))
        temporary.replace(self._spec(uid))  # runtimes read a spec as soon as it is there
        return [PreparedDevice.of(result, f"{KIND}={uid}-{result.device}") for result in claim.results]

    def _spec(self, uid: str) -> Path:
        return self._cdi / f"{NAME}_{uid}.json"


async def main(options: argparse.Namespace) -> None:
    driver = DiceDriver(options.cdi)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, driver.end.set)
    async with (
        await ApiServer.connect(kubeconfig=options.kubeconfig) as api,
        Plugin(NAME, driver, options.node, api, pod_uid=options.pod_uid) as plugin,
    ):
        dice = [{"name": f"die-{number}", "attributes": {"sides": {"int": 6}}} for number in range(options.dice)]
        plugin.publish({options.node: Pool.of(dice)})
        await driver.end.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A DRA driver for dice.")
    parser.add_argument("node", help="name of the node that this runs on")
    parser.add_argument("dice", nargs="?", type=int, default=4, help="how many the node has")
    parser.add_argument("--cdi", type=Path, default=Path("/var/run/cdi"), help="folder for CDI specs")
    parser.add_argument("--kubeconfig", help="default: the pod's service account, else $KUBECONFIG")
    parser.add_argument("--pod-uid", default="", help="of this pod, so that an update can run beside it")
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(parser.parse_args()))
