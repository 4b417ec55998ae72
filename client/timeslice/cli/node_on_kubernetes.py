"""`timeslice node --kubernetes`: the node as a DaemonSet's pod, kubelet plugin and Snapshot Agent in one."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from timeslice_api.errors import ConfigError

from timeslice.cli import options, serving
from timeslice.cli.options import add_option

if TYPE_CHECKING:
    from timeslice_driver.config import NodeConfig
    from timeslice_driver.dra.config import PluginConfig

STATE_DIR = "/var/lib/timeslice"
LOOK_INTERVAL_S = (
    5.0  # a node has hundreds of jobs' processes; ends are events, and whoever acquires has itself looked at
)
_FOLDERS = (
    ("--kubelet-dir", "TIMESLICE_KUBELET_DIR", "/var/lib/kubelet", "the kubelet's, at the path where it has it itself"),
    ("--claim-sockets", "TIMESLICE_CLAIM_SOCKETS", "/run/timeslice/claims", "a folder with a socket for each claim"),
    ("--cdi-dir", "TIMESLICE_CDI_DIR", "/var/run/cdi", "CDI specs that come and go, ours too"),
    ("--cdi-static-dir", "TIMESLICE_CDI_STATIC_DIR", "/etc/cdi", "CDI specs of the machine"),
    ("--sys-root", "TIMESLICE_SYS_ROOT", "/sys", "sysfs"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """--kubernetes, and what only counts with it."""
    group = parser.add_argument_group(
        "on Kubernetes",
        "Groups and jobs come from prepared claims, so --group does not count. The node's name must be\n"
        f"that of its Node object; the state directory is {STATE_DIR} by default.",
    )
    on = os.environ.get("TIMESLICE_KUBERNETES", "").lower() in {"1", "true", "yes"}
    text = "be the kubelet plugin too [env TIMESLICE_KUBERNETES=1]"
    group.add_argument("--kubernetes", action="store_true", default=on, help=text)
    text = "host:port for /metrics, /healthz and /readyz, by TLS with --tls-cert and --tls-key; default: none"
    add_option(group, "--telemetry-listen", env="TIMESLICE_TELEMETRY_LISTEN", text=text, metavar="ADDRESS")
    text = "of the API server; default: as a pod, or as kubectl"
    add_option(group, "--kubeconfig", env="TIMESLICE_KUBECONFIG", text=text, metavar="FILE")
    text = "of the node's own pod, which tells the two halves of a rolling update apart"
    add_option(group, "--pod-uid", env="POD_UID", text=text, default="", metavar="UID")
    text = "the orchestrator's address for pods; default: as --orchestrator"
    add_option(group, "--pods-orchestrator", env="TIMESLICE_PODS_ORCHESTRATOR", text=text, metavar="ADDRESS")
    _add_offers(group)
    for flag, env, default, what in _FOLDERS:
        add_option(group, flag, env=env, text=f"{what}; default {default}", default=default, metavar="DIR", type=Path)


def _add_offers(group: options.TakesOptions) -> None:
    text = "how GPUs are offered to the scheduler; default auto"
    modes = ("auto", "lanes", "slots")
    add_option(group, "--dra-mode", env="TIMESLICE_DRA_MODE", text=text, default="auto", choices=modes)
    text = "for snapshots on the whole node, such as 800Gi; default: what the node may allocate, less the reserve"
    add_option(group, "--host-memory", env="TIMESLICE_HOST_MEMORY", text=text, metavar="QUANTITY")
    text = "memory of the node that is for no snapshot; default 4Gi"
    env = "TIMESLICE_HOST_MEMORY_RESERVE"
    add_option(group, "--host-memory-reserve", env=env, text=text, default="4Gi", metavar="QUANTITY")


def state_dir(arguments: argparse.Namespace) -> Path:
    """The chosen state directory, absolute; it must outlive the pod."""
    return Path(arguments.state_dir or STATE_DIR).absolute()


def plugin_config(arguments: argparse.Namespace, directory: Path) -> PluginConfig:
    """The kubelet plugin's configuration.

    Raises:
        ConfigError: a quantity is none.
    """
    from timeslice_api.kinds import bytes_of
    from timeslice_api.kinds.names import DRIVER
    from timeslice_driver.dra.config import PluginConfig

    memory = bytes_of(arguments.host_memory, "--host-memory") if arguments.host_memory else None
    return PluginConfig(
        node_name=arguments.node_name,
        orchestrator=arguments.pods_orchestrator or arguments.orchestrator or "",
        state_dir=directory / "dra",
        sockets=arguments.claim_sockets,
        ca=Path(arguments.tls_ca).absolute() if arguments.tls_ca else None,
        mode=arguments.dra_mode,
        host_memory=memory,
        host_memory_reserve=bytes_of(arguments.host_memory_reserve, "--host-memory-reserve"),
        pod_uid=arguments.pod_uid,
        registry_dir=arguments.kubelet_dir / "plugins_registry",
        data_dir=arguments.kubelet_dir / "plugins" / DRIVER,
        cdi_dir=arguments.cdi_dir,
        cdi_static_dir=arguments.cdi_static_dir,
        dev_root=arguments.dev_root,
        proc_root=arguments.proc_root,
        sys_root=arguments.sys_root,
        libnvml=arguments.libnvml,
        boot_id_file=arguments.boot_id_file,
    )


def run(arguments: argparse.Namespace, config: NodeConfig, directory: Path) -> int:
    """Runs until SIGTERM or Ctrl-C, or until the plugin cannot go on.

    Raises:
        ConfigError: half a configuration.
    """
    if not arguments.orchestrator:
        raise ConfigError(
            "a node on Kubernetes needs an orchestrator",
            hint="give its address: --orchestrator, or TIMESLICE_ORCHESTRATOR",
        )
    options.made(directory)
    from timeslice_driver.kubernetes_node import KubernetesNode

    node = KubernetesNode(
        replace(config, look_interval_s=LOOK_INTERVAL_S),
        plugin_config(arguments, directory),
        kubeconfig=arguments.kubeconfig,
        telemetry=arguments.telemetry_listen or "",
    )
    ready = serving.ready_line(f"claims are prepared on {arguments.node_name}")
    return serving.serve(lambda: [node], ready, failed=node.failed)
