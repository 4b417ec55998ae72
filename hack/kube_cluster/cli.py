"""The command line of hack/cluster."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from timeslice_api.unread import ends_when_unread

from kube_cluster.building import build, module_folder
from kube_cluster.cluster import Cluster
from kube_cluster.errors import ClusterError
from kube_cluster.modules import HELM, KUBERNETES
from kube_cluster.node import WorkerNode
from kube_cluster.settings import Settings
from kube_cluster.status import report, table


@ends_when_unread
def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 with a message on standard error."""
    options = parsed(arguments)
    try:
        return int(options.do(options) or 0)
    except ClusterError as error:
        print(f"hack/cluster: {error}", file=sys.stderr)
        return 1


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="hack/cluster", description="A real Kubernetes cluster without Docker.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do: object, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(do=do)
        if name != "build":
            added.add_argument("--name", default="timeslice", help="of the cluster; default: timeslice")
        return added

    command("build", lambda options: build(), "Build all programs that are not in the cache.")
    up = command("up", _up, "Bring the cluster up; build first what is missing.")
    up.add_argument("--gates", default="", metavar="NAME=BOOL,...", help="feature gates of all components")
    up.add_argument("--gpus", type=int, default=Settings.gpus, help="emulated GPUs per worker; default: %(default)s")
    up.add_argument("--gpu-memory", type=int, default=Settings.gpu_memory, metavar="BYTES", help="per GPU")
    command("down", lambda options: Cluster(options.name).down(), "End the cluster and remove all that it left.")
    status = command("status", _status, "Tell what runs. Exit status 1 when not everything does.")
    status.add_argument("--json", action="store_true")
    load = command("load", _load, "Import image archives on every worker.")
    load.add_argument("archives", nargs="+", type=Path, metavar="IMAGE.tar")
    images = command(
        "images", _images, "Build the images of the product and the RL job, and import them on every worker."
    )
    images.add_argument("--folder", type=Path, help="write archives there, and import nothing")
    command("env", _env, "Print the shell lines that point kubectl and helm at the cluster.")
    enter = command("enter", _enter, "Run a command (default: a shell) in a worker's namespaces.")
    enter.add_argument("node")
    enter.add_argument("command", nargs=argparse.REMAINDER)
    reboot = command("reboot", lambda options: _node(options).reboot(), "Reboot a worker, as after a power cut.")
    reboot.add_argument("node")
    return parser.parse_args(arguments)


def _up(options: argparse.Namespace) -> None:
    started = time.monotonic()
    build()
    cluster = Cluster(options.name)
    wishes = Settings(gates=options.gates, gpus=options.gpus, gpu_memory=options.gpu_memory)
    if cluster.up(wishes):
        print(f"cluster {cluster.name} is up after {time.monotonic() - started:.0f} s", file=sys.stderr)
    else:
        print(f"cluster {cluster.name} is up already", file=sys.stderr)
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _status(options: argparse.Namespace) -> int:
    found = report(Cluster(options.name))
    print(json.dumps(found.to_json(), indent=1) if options.json else table(found))
    return 0 if found.is_well else 1


def _load(options: argparse.Namespace) -> None:
    for archive in options.archives:
        Cluster(options.name).load(archive)


def _images(options: argparse.Namespace) -> None:
    from kube_cluster.images import load_images, write_images  # with .venv alone

    started = time.monotonic()
    if options.folder:
        print("\n".join(map(str, write_images(options.folder))))
    else:
        load_images(Cluster(options.name).nodes.values())
    print(f"images are ready after {time.monotonic() - started:.0f} s", file=sys.stderr)


def _env(options: argparse.Namespace) -> None:
    print(f"export KUBECONFIG={Cluster(options.name).kubeconfig}")
    print(f'export PATH="{module_folder(KUBERNETES)}:{module_folder(HELM)}:$PATH"')


def _node(options: argparse.Namespace) -> WorkerNode:
    nodes = Cluster(options.name).nodes
    if options.node not in nodes:
        raise ClusterError(f"no node {options.node}; there are {', '.join(nodes)}")
    return nodes[options.node]


def _enter(options: argparse.Namespace) -> None:
    command = _node(options).inside(options.command or [os.environ.get("SHELL", "/bin/sh")])
    sys.stdout.flush()
    os.execvp(command[0], command)
