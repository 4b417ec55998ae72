"""How an orchestrator is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from timeslice_api.tls import TlsFiles

from timeslice_orchestrator.core.model import Settings


@dataclass(frozen=True)
class OrchestratorConfig:
    """What `Orchestrator` needs to know.

    Attributes:
        state_dir: where its state is kept; made when missing. One orchestrator at a time.
        listen: addresses, `unix:///path` or `host:port` (port 0: a free one). Who opens a socket may do everything.
        tokens_file: see `access.tokens_file`; who calls over TCP. None: everybody on this machine may do everything,
            and only addresses of the loopback are listened on.
        tls: certificate, key, and the authority that clients' certificates must be of, if any. An address that others
            than this machine reach needs them: see timeslice_api.tls.
        groups_file: see `discovery.groups_file`; None leaves the groups to the nodes.
        settings: time limits of the core.
        telemetry_listen: `host:port` for metrics, health and readiness, with the same certificate; empty: none.
        standby: several processes, here or on machines that share the state directory, stand for it; one at a time
            serves, and another one follows it at its end. Without, a second one is an error.
    """

    state_dir: Path
    listen: tuple[str, ...]
    groups_file: Path | None = None
    tokens_file: Path | None = None
    settings: Settings = field(default_factory=Settings)
    telemetry_listen: str = ""
    standby: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)


@dataclass(frozen=True)
class KubernetesConfig:
    """What `kubernetes.orchestrator.KubernetesOrchestrator` needs to know.

    Attributes:
        namespace: of the Lease by which one of several processes leads.
        listen: addresses, as above; bound only while it leads. Calls over TCP carry service accounts' tokens,
            unless only this machine reaches it.
        tls: as above.
        identity: of this process in the Lease, for people: its pod's name.
        lease_name: name of the Lease.
        lease_s: a leader that is silent for so long is replaced (seconds). It stops by itself after two thirds of that,
            and says that it lives each two fifteenths.
        telemetry_listen: as above.
        node_account: the service account of nodes, as Kubernetes names it as a user.
        kubeconfig: file that says where the API server is; empty: as a pod, else $KUBECONFIG or ~/.kube/config.
        settings: time limits of the core.
    """

    namespace: str
    listen: tuple[str, ...]
    identity: str
    lease_name: str = "timeslice-orchestrator"
    lease_s: float = 15.0
    telemetry_listen: str = ""
    node_account: str = "system:serviceaccount:timeslice:timeslice-node"
    kubeconfig: str = ""
    settings: Settings = field(default_factory=Settings)
    tls: TlsFiles = field(default_factory=TlsFiles)
