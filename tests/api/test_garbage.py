from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
import weakref

from timeslice_api.garbage import collect_all_seldom

class Cycle:
    def __init__(self):
        self.itself = self

collect_all_seldom()
full, cycles = [], weakref.WeakSet()
gc.callbacks.append(lambda phase, info: full.append(phase) if info["generation"] == 2 else None)
held = []
for _ in range(200_000):
    held.append([])
    cycles.add(Cycle())
print(len(full), len(cycles) < 20_000)
"""


def test_young_cycles_are_freed_while_all_that_is_held_is_not_looked_at() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["0", "True"]
