"""The few requests that bringing a cluster up needs, without a client library."""

import json
import ssl
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from kube_cluster.errors import ClusterError

_LIMIT_S = 5.0


class ApiClient:
    """Speaks to the API server as the administrator; a connection for each request. ClusterError when it cannot."""

    def __init__(self, address: str, certificates: Path) -> None:
        self._address = address
        self._certificates = certificates

    def get(self, path: str) -> str:
        """The body of the answer."""
        context = ssl.create_default_context(cafile=str(self._certificates / "ca.crt"))
        context.load_cert_chain(self._certificates / "admin.crt", self._certificates / "admin.key")
        connection = HTTPSConnection(self._address, timeout=_LIMIT_S, context=context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read().decode()
        except (OSError, HTTPException) as error:
            raise ClusterError(f"the API server does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise ClusterError(f"the API server refuses {path}: {answer.status} {body[-500:]}")
        return body

    def node_conditions(self) -> dict[str, str]:
        """Name of each node: empty when it is Ready, else why not."""
        items: list[dict[str, Any]] = json.loads(self.get("/api/v1/nodes"))["items"]
        return {item["metadata"]["name"]: _not_ready(item) for item in items}


def _not_ready(node: dict[str, Any]) -> str:
    ready = [entry for entry in node.get("status", {}).get("conditions", []) if entry["type"] == "Ready"]
    if not ready:
        return "has not reported yet"
    return "" if ready[0]["status"] == "True" else str(ready[0].get("message") or ready[0]["status"])
