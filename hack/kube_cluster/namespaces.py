"""The mount namespace of a worker: the standard paths are its own folders there."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from kube_cluster.layout import NodeFolder


def mount_script(node: NodeFolder) -> str:
    """Run in a new mount and UTS namespace; says ready, and keeps the namespaces for as long as it lives.

    Mounts inside are shared with the namespaces of the pods, as on any node, and none reach the machine.
    """
    own = {node.var_lib: "/var/lib", node.var_log: "/var/log", node.run: "/run"}
    binds = [f"mount --bind {shlex.quote(str(folder))} {place}" for folder, place in own.items()]
    layers = f"lowerdir=/etc,upperdir={node.etc},workdir={node.path / 'etc.work'}"
    lines = [
        "set -e",
        # Copies of other clusters' network namespaces would keep these alive after their end.
        "umount --recursive --lazy /run/netns 2> /dev/null || true",
        *binds,
        f"mount -t overlay -o {shlex.quote(layers)} overlay /etc",
        f"mount --bind {shlex.quote(str(node.boot_id))} /proc/sys/kernel/random/boot_id",
        f"hostname {node.name}",
        "mount --make-rshared /",
        "echo ready",
        "exec sleep infinity > /dev/null",
    ]
    return "\n".join(lines)


def holder_command(node: NodeFolder, network: Path) -> list[str]:
    """The process that makes the node's namespaces and keeps them."""
    make = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", mount_script(node)]
    return ["nsenter", f"--net={network}", *make]


def inside(holder_pid: int, command: Sequence[str]) -> list[str]:
    """The command, to be run in the node."""
    return ["nsenter", f"--target={holder_pid}", "--net", "--mount", "--uts", *command]


def inside_network(network: Path, command: Sequence[str]) -> list[str]:
    """The command, to be run in that network only."""
    return ["nsenter", f"--net={network}", *command]
