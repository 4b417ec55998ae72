"""What a cluster was brought up with."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from kube_cluster.errors import ClusterError

_GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class Settings:
    """``gates`` as Kubernetes' ``--feature-gates`` has them; ``gpu_memory`` in bytes per GPU, ``gpus`` per worker."""

    gates: str = ""
    gpus: int = 4
    gpu_memory: int = 2 * _GIBIBYTE
    octet: int = 0  # of the network; chosen at up

    def parsed_gates(self) -> dict[str, bool]:
        """ClusterError for what is no list of NAME=true or NAME=false."""
        found = {}
        for entry in filter(None, self.gates.split(",")):
            name, _, value = entry.partition("=")
            if not name or value not in ("true", "false"):
                raise ClusterError(f"--gates: {entry!r} is not NAME=true or NAME=false")
            found[name] = value == "true"
        return found

    def same_wishes(self, other: "Settings") -> bool:
        """Whether a cluster that was made with the other settings will do."""
        return (self.parsed_gates(), self.gpus, self.gpu_memory) == (
            other.parsed_gates(),
            other.gpus,
            other.gpu_memory,
        )

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> "Settings":
        """ClusterError when the file is not whole, as after a kill."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise ClusterError(f"{path} cannot be read: {error}") from error
