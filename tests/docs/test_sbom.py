"""The bill of materials has what the image is made of, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from shown import ROOT


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_each_pinned_package_of_the_image_is_listed_with_its_version_and_hashes(tmp_path: Path) -> None:
    subprocess.run([str(ROOT / "hack/sbom"), str(tmp_path / "bom.json")], check=True, timeout=380, capture_output=True)
    bill = json.loads((tmp_path / "bom.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "timeslice")
    listed = {(each["name"], each["version"]) for each in bill["components"]}
    command = [sys.executable, str(ROOT / "deployments/images/pinned.py"), "timeslice[node,orchestrator]"]
    pins = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout
    assert listed == set(re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\\\]+)", pins, re.M))
    assert all(each["externalReferences"][0]["hashes"] for each in bill["components"])
