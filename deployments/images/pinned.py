"""Prints the pinned requirements, with hashes, of what an image needs: `python pinned.py timeslice[node] numpy`.
After `--alone` come packages of which no requirements are wanted.

pip resolves, held to the versions of hack/constraints.txt; the hashes come from there. A constraints file with hashes
cannot be given to pip itself, which then wants a hash for the names on its command line too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def pins(text: str) -> dict[str, list[str]]:
    """The entries of a constraints file with their hashes, by normalised name; several where markers choose one."""
    entries = re.split(r"\n(?=\S)", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    found: dict[str, list[str]] = {}
    for entry in entries:
        if "==" in entry:
            found.setdefault(_name(entry.partition("==")[0]), []).append(entry)
    return found


def _name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower().strip()


def needed(wanted: list[str], versions: str) -> list[str]:
    """Names of all that has to be installed for these requirements, without our own package."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "versions")
        constraints.write_text(versions)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        here = [re.sub(r"^timeslice(\[.*\])?$", rf"timeslice\1 @ file://{ROOT}", each) for each in wanted]
        done = subprocess.run(
            [*command, "--report", "-", "-c", str(constraints), *here], stdout=subprocess.PIPE, text=True, check=True
        )
    found = (_name(each["metadata"]["name"]) for each in json.loads(done.stdout)["install"])
    return sorted(set(found) - {"timeslice"})


def main() -> None:
    """Reads hack/constraints.txt."""
    entries = pins((ROOT / "hack/constraints.txt").read_text())
    versions = "\n".join(re.sub(r" \\\n\s+--hash=\S+", "", entry) for each in entries.values() for entry in each)
    wanted, _, alone = " ".join(sys.argv[1:]).partition("--alone")
    for name in [*needed(wanted.split(), versions), *alone.split()]:
        print("\n".join(entries[name]))


if __name__ == "__main__":
    main()
