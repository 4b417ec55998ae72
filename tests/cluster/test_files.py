import json
import tomllib
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from kube_cluster.control_plane import corefile, first_objects, gates_line, subjects
from kube_cluster.emulated_gpus import EmulatedGpus, cdi_file
from kube_cluster.errors import ClusterError
from kube_cluster.layout import API_SERVICE, WORKERS, Addresses, ClusterFolder, check_visible
from kube_cluster.namespaces import mount_script
from kube_cluster.network import free_octet, machine_interface
from kube_cluster.node_files import NodeFiles, containerd_configuration, network_configuration
from kube_cluster.settings import Settings

ADDRESSES = Addresses(211)


@pytest.fixture
def folder(tmp_path):
    return ClusterFolder("timeslice", tmp_path)


def test_pods_of_the_two_workers_never_share_an_address():
    ranges = [ADDRESSES.pods(index) for index in range(len(WORKERS))]
    assert ranges[0][1] < ranges[1][0]
    fixed = {ADDRESSES.control_plane, ADDRESSES.machine, *map(ADDRESSES.worker, range(len(WORKERS)))}
    assert len(fixed) == 4
    assert not any(first <= address <= last for first, last in ranges for address in fixed)


def test_a_network_that_the_machine_uses_is_not_taken():
    assert free_octet([]) == 211
    taken = [IPv4Network("10.211.0.0/16"), IPv4Network("10.212.7.0/24"), IPv4Network("0.0.0.0/0")]
    assert free_octet(taken) == 213
    with pytest.raises(ClusterError, match="is free"):
        free_octet([IPv4Network("10.0.0.0/8")])


def test_names_of_interfaces_fit_into_the_kernels_limit():
    assert len(machine_interface(Addresses(249))) <= 15


@pytest.mark.parametrize("name", ["", "Upper", "-a", "a/b", "a" * 21])
def test_a_cluster_with_a_bad_name_is_refused(name):
    with pytest.raises(ClusterError, match="letters, digits and dashes"):
        ClusterFolder(name)


def test_sockets_in_the_state_folder_fit_into_the_kernels_limit():
    node = ClusterFolder("a" * 20, Path("/var/tmp/timeslice-cluster")).node("node-a")
    sockets = [node.containerd_socket, EmulatedGpus(node, count=1, memory=1, seed="").socket]
    assert max(len(str(socket)) for socket in sockets) < 107


def test_a_state_folder_that_nodes_cannot_see_is_refused():
    check_visible(Path("/var/tmp/x"))
    with pytest.raises(ClusterError, match="/var/lib"):
        check_visible(Path("/var/lib/x"))


def test_the_kubelet_configuration_has_what_this_kind_of_node_needs(folder):
    node = folder.node("node-b")
    node.configuration.mkdir(parents=True)
    files = NodeFiles(folder, ADDRESSES, 1, node)
    files.write(plugins=Path("/cni"), runtime=Path("/runc"), gates={"DRAConsumableCapacity": False})
    written = json.loads(files.kubelet.read_text())
    assert written["address"] == "10.211.2.1"
    assert written["cgroupRoot"] == "/timeslice-cluster.timeslice/node-b"
    assert written["featureGates"] == {"DRAConsumableCapacity": False}
    assert written["clusterDNS"] == ["10.96.0.10"]
    assert Path(written["resolvConf"]).read_text() == "nameserver 10.96.0.10\n"


def test_the_containerd_configuration_is_toml_and_reads_cdi_files_from_both_folders():
    text = containerd_configuration(networks=Path("/n"), plugins=Path("/p"), runtime=Path("/runc"))
    runtime = tomllib.loads(text)["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["cdi_spec_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert runtime["cni"] == {"bin_dirs": ["/p"], "conf_dir": "/n"}
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/runc"


def test_pods_reach_services_through_the_control_plane():
    assignment = network_configuration(ADDRESSES, 0)["plugins"][0]["ipam"]
    assert assignment["routes"][1] == {"dst": "10.96.0.0/16", "gw": "10.211.0.1"}
    assert assignment["ranges"][0][0]["rangeStart"] == "10.211.1.10"


def test_the_api_servers_certificate_names_all_its_addresses():
    names = subjects(ADDRESSES)["api-server"].names
    assert {"DNS:kubernetes.default.svc.cluster.local", f"IP:{API_SERVICE}", "IP:10.211.0.1"} <= set(names)
    assert subjects(ADDRESSES)["node-a"].line == "/O=system:nodes/CN=system:node:node-a"


def test_dns_answers_at_the_address_of_its_service():
    assert "bind 10.96.0.10" in corefile("/k")
    service = next(item for item in first_objects()["items"] if item["kind"] == "Service")
    assert service["spec"]["clusterIP"] == "10.96.0.10"


def test_a_node_has_its_own_folders_at_the_standard_places(folder):
    script = mount_script(folder.node("node-a"))
    assert f"mount --bind {folder.path}/node-a/var/lib /var/lib" in script
    assert f"mount --bind {folder.path}/node-a/run /run" in script
    # Sharing comes last: what is mounted before it is shared stays among the node's own.
    assert script.index("make-rshared") > script.rindex("mount --bind")


def test_the_cdi_file_names_each_gpu_by_index_and_uuid():
    written = cdi_file(["GPU-a", "GPU-b"])
    assert written["kind"] == "nvidia.com/gpu"
    devices = {device["name"]: device["containerEdits"]["mounts"] for device in written["devices"]}
    assert devices["1"] == devices["GPU-b"]
    assert [mount["containerPath"] for mount in devices["all"]] == ["/dev/nvidia0", "/dev/nvidia1"]


def test_feature_gates_are_checked_before_anything_starts():
    assert Settings(gates="A=true,B=false").parsed_gates() == {"A": True, "B": False}
    assert gates_line({"B": False, "A": True}) == "A=true,B=false"
    with pytest.raises(ClusterError, match="'A=yes'"):
        Settings(gates="A=yes").parsed_gates()


def test_settings_are_the_same_whatever_network_was_free(tmp_path):
    saved = Settings(gates="A=true,B=false", octet=213)
    saved.save(tmp_path / "settings")
    assert Settings.load(tmp_path / "settings") == saved
    assert saved.same_wishes(Settings(gates="B=false,A=true"))
    assert not saved.same_wishes(Settings())


def test_settings_that_a_kill_cut_off_are_an_error_of_ours(tmp_path):
    (tmp_path / "settings").write_text('{"gates"')
    with pytest.raises(ClusterError, match="cannot be read"):
        Settings.load(tmp_path / "settings")
