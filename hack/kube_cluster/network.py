"""Network namespaces and the one flat network that joins control plane, workers, pods and this machine."""

import json
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path

from kube_cluster.errors import ClusterError
from kube_cluster.layout import API_SERVICE, BRIDGE, DNS_SERVICE, SERVICES, WORKERS, Addresses, ClusterFolder
from kube_cluster.machine import run

CONTROL_PLANE = "control-plane"
UPLINK = "uplink"  # of a worker: its end of the cable
_OCTETS = range(211, 250)
_NAMESPACES = Path("/run/netns")


def free_octet(taken: Iterable[IPv4Network]) -> int:
    """The first network that overlaps nothing the machine has a route to. ClusterError when all are taken."""
    known = [network for network in taken if network.prefixlen > 0]
    for octet in _OCTETS:
        if not any(Addresses(octet).network.overlaps(network) for network in known):
            return octet
    raise ClusterError(f"no network 10.{_OCTETS[0]}.0.0/16 to 10.{_OCTETS[-1]}.0.0/16 is free")


def routed_networks() -> list[IPv4Network]:
    """Where the machine has routes to."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "main"]))
    return [IPv4Network(route["dst"]) for route in routes if route["dst"] != "default"]


def machine_interface(addresses: Addresses) -> str:
    """The interface by which this machine reaches the cluster; named after the network, which is the cluster's own."""
    return f"tscluster{addresses.octet}"


class Network:
    """The namespaces of one cluster."""

    def __init__(self, folder: ClusterFolder, addresses: Addresses) -> None:
        self._folder = folder
        self._addresses = addresses

    def namespace_file(self, part: str) -> Path:
        return _NAMESPACES / self._folder.network_namespace(part)

    def create(self) -> None:
        """Makes everything; nothing of it may be there."""
        addresses = self._addresses
        plane = self._folder.network_namespace(CONTROL_PLANE)
        self._make_namespace(CONTROL_PLANE, f"{addresses.control_plane}/16")
        for service in (API_SERVICE, DNS_SERVICE):
            run(["ip", "-n", plane, "address", "add", f"{service}/32", "dev", BRIDGE])
        interface = machine_interface(addresses)
        self._join(interface, None, "machine")
        run(["ip", "address", "add", f"{addresses.machine}/16", "dev", interface])
        run(["ip", "link", "set", interface, "up"])
        for index, worker in enumerate(WORKERS):
            namespace = self._folder.network_namespace(worker)
            self._make_namespace(worker, f"{addresses.worker(index)}/16")
            self._join(UPLINK, namespace, worker)
            run(["ip", "-n", namespace, "link", "set", UPLINK, "master", BRIDGE, "up"])
            # The services that have no pods behind them live on the control plane's bridge: no address translation.
            via = ["via", str(addresses.control_plane)]
            run(["ip", "-n", namespace, "route", "add", str(SERVICES), *via])

    def _make_namespace(self, part: str, address: str) -> None:
        name = self._folder.network_namespace(part)
        run(["ip", "netns", "add", name])
        run(["ip", "-n", name, "link", "set", "lo", "up"])
        run(["ip", "-n", name, "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0"])
        run(["ip", "-n", name, "address", "add", address, "dev", BRIDGE])
        run(["ip", "-n", name, "link", "set", BRIDGE, "up"])

    def _join(self, interface: str, namespace: str | None, name: str) -> None:
        """A cable from ``interface`` in the namespace (or this machine) to the control plane's bridge."""
        plane = self._folder.network_namespace(CONTROL_PLANE)
        own = ["ip", "-n", namespace] if namespace else ["ip"]
        run([*own, "link", "add", interface, "type", "veth", "peer", "name", name, "netns", plane])
        run(["ip", "-n", plane, "link", "set", name, "master", BRIDGE, "up"])


def remove(folder: ClusterFolder) -> None:
    """Removes the cluster's namespaces, and with them all interfaces. Does nothing when there are none."""
    for part in (*WORKERS, CONTROL_PLANE):
        name = folder.network_namespace(part)
        if (_NAMESPACES / name).exists():
            run(["ip", "netns", "delete", name])


def remove_interface(addresses: Addresses) -> None:
    """The machine's end of the cable: it goes with the namespace, but not at once."""
    name = machine_interface(addresses)
    if Path(f"/sys/class/net/{name}").exists():
        try:
            run(["ip", "link", "delete", name])
        except ClusterError:
            if Path(f"/sys/class/net/{name}").exists():
                raise
