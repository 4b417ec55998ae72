"""What the world keeps on the nodes: folders for the jobs' logs, an office for their pids, the traces of the GPUs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from kube_cluster import Cluster, WorkerNode

from timeslice_chaos.cluster.follow import Jobs, Tail
from timeslice_chaos.cluster.jobs import HOST_FOLDER, OFFICE, PLACES
from timeslice_chaos.cluster.pids import PidOffice


class Places:
    """Of all nodes; what happened to their GPUs before is not of interest."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes
        self._traces = {name: Tail.from_now(node.gpus.trace) for name, node in self._nodes.items()}
        self._offices: list[PidOffice] = []
        self.jobs = Jobs({place: self._folder(place) for place in PLACES})

    def furnish(self) -> None:
        """Makes the folders anew, and opens the offices."""
        for node in self._nodes.values():
            shutil.rmtree(_home(node), ignore_errors=True)
            _make(_home(node))
            self._offices.append(PidOffice(_home(node) / OFFICE))
        for place in PLACES:
            _make(self._folder(place))

    def collect(self, logs: Path) -> None:
        """Copies what jobs and GPUs have told. Others than these jobs may have used the GPUs, too."""
        pids = {process.pid for process in self.jobs.all()}
        for place in PLACES:
            for path in self._folder(place).glob("*.jsonl"):
                shutil.copy(path, logs / f"{place}-{path.name}")
        for name, tail in self._traces.items():
            lines = [f"{line}\n" for line in tail.lines() if json.loads(line)["pid"] in pids]
            (logs / f"gpu-{name}.jsonl").write_text("".join(lines))

    def clear(self) -> None:
        """Nothing of it is left on the nodes."""
        for office in self._offices:
            office.close()
        for node in self._nodes.values():
            shutil.rmtree(_home(node), ignore_errors=True)

    def _folder(self, place: str) -> Path:
        return _home(self._nodes[PLACES[place]]) / place


def _home(node: WorkerNode) -> Path:
    """What the node has at HOST_FOLDER."""
    return node.folder.var_lib / HOST_FOLDER.relative_to("/var/lib")


def _make(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)  # pods have users of their own
