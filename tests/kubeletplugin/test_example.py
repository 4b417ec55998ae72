from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dra_kubeletplugin import Plugin
from dra_kubeletplugin.apiserver import CLAIMS
from fake_api_server import FakeApiServer
from fake_kubelet import FakeKubelet
from scripted_driver import allocate, result

EXAMPLE = Path(__file__).parents[2] / "examples" / "dra-driver" / "driver.py"


async def test_the_example_prepares_dice_the_same_way_twice_and_takes_them_away_again(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: Callable[..., Plugin], folder: Path
) -> None:
    dice: Any = runpy.run_path(str(EXAMPLE))["DiceDriver"](folder / "cdi")
    ref = await allocate(server, "c", result("die-0"), result("die-1"))
    async with new_plugin(driver=dice):
        await kubelet.register_all()
        ids = [list(device.cdi_device_ids) for device in (await kubelet.prepare(ref))[ref.uid].devices]
        assert ids == [[f"dice.example.com/die={ref.uid}-die-{number}"] for number in (0, 1)]
        (spec,) = (folder / "cdi").iterdir()
        first = spec.read_text()
        (variable,) = json.loads(first)["devices"][1]["containerEdits"]["env"]
        assert variable.startswith("DIE_1=")
        spec.unlink()  # as a reboot does
        await kubelet.prepare(ref)
        assert spec.read_text() == first
        await server.remove(CLAIMS, ref.name, namespace="jobs")
        assert not (await kubelet.unprepare(ref))[ref.uid].error
        assert not spec.exists()
