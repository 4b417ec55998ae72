"""What the driver keeps on a worker, read from outside."""

from __future__ import annotations

import json
from typing import Any

from kube_cluster import WorkerNode

_SPEC = "timeslice.dev-claim_"
STEPS = ("record", "socket", "CDI spec", "completed record")  # what prepare leaves, in this order


class NodeState:
    """Records, CDI specs and sockets of prepared claims, by the claims' UIDs."""

    def __init__(self, node: WorkerNode) -> None:
        self._checkpoint = node.folder.var_lib / "timeslice/dra/claims.json"
        self._specs = node.folder.run / "cdi"
        self._sockets = node.folder.run / "timeslice/claims"

    def boot_id(self) -> str:
        """In which the records were made."""
        return str(self._read()["bootId"])

    def held(self, *states: str) -> set[str]:
        """Claims that are prepared or about to be; or those in the states."""
        wanted = states or ("started", "completed")
        return {uid for uid, claim in self._claims().items() if claim["state"] in wanted}

    def specs(self) -> set[str]:
        """Claims with a CDI spec."""
        return {path.stem.removeprefix(_SPEC) for path in self._specs.glob(f"{_SPEC}*.json")}

    def sockets(self) -> set[str]:
        """Claims with a folder for their pods' socket."""
        return {path.name for path in self._sockets.glob("*")}

    def reached(self, step: str) -> set[str]:
        """Claims whose prepare has got to the step (STEPS), and no unprepare since."""
        if step == "socket":
            return self.sockets()
        if step == "CDI spec":
            return self.specs()
        return self.held("completed") if step == "completed record" else self.held()

    def left(self, *uids: str) -> str | None:
        """What is there of these claims; None when nothing is. For ``until``."""
        found = {"records": self.held(), "CDI specs": self.specs(), "sockets": self.sockets()}
        ours = {what: sorted(claims & set(uids)) for what, claims in found.items() if claims & set(uids)}
        return str(ours) if ours else None

    def _claims(self) -> dict[str, dict[str, Any]]:
        claims: dict[str, dict[str, Any]] = self._read()["claims"]
        return claims

    def _read(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._checkpoint.read_text())
        return content
