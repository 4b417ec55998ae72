import dataclasses
import shutil

import pytest
from kube_cluster import modules
from kube_cluster.building import default_name, missing_modules, module_folder, program
from kube_cluster.cache import filling, sweep
from kube_cluster.errors import ClusterError
from kube_cluster.modules import ETCD, KUBERNETES, MODULES
from kube_cluster.toolchain import Need, needed_go, parse_version, require


@pytest.fixture
def own_copy(tmp_path, monkeypatch):
    """The etcd module's folder, as a copy that a test may change."""
    shutil.copytree(ETCD.folder, tmp_path / "build" / "etcd")
    monkeypatch.setattr(modules, "BUILD_FOLDER", tmp_path / "build")
    return tmp_path / "build" / "etcd"


@pytest.mark.parametrize("part", ["go.mod", "go.sum", "programs.go"])
def test_a_module_that_changes_is_built_anew(own_copy, part):
    before = ETCD.digest()
    (own_copy / part).write_text((own_copy / part).read_text() + "\n")
    assert ETCD.digest() != before


def test_other_flags_or_programs_are_built_anew():
    others = [{"tags": "x"}, {"linker_flags": "-X a=b"}, {"cgo": True}, {"programs": {}}]
    digests = {dataclasses.replace(ETCD, **change).digest() for change in others}
    assert len(digests - {ETCD.digest()}) == len(others)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_module_is_pinned_with_its_checksums(module):
    pinned = (module.folder / "go.mod").read_text()
    assert "h1:" in (module.folder / "go.sum").read_text()
    for package in module.programs.values():
        if package != ".":
            assert any(f"{package.split('/')[0]}/" in line for line in pinned.splitlines())


def test_all_parts_of_kubernetes_are_of_the_version_that_it_reports():
    pinned = (KUBERNETES.folder / "go.mod").read_text()
    version = next(line.split()[2] for line in pinned.splitlines() if line.startswith("require k8s.io/kubernetes "))
    assert f"gitVersion={version}" in KUBERNETES.linker_flags
    staging = {line.split()[-1] for line in pinned.splitlines() if " => k8s.io/" in line}
    assert staging == {version.replace("v1.", "v0.", 1)}


def test_programs_get_the_names_that_we_call_them_by():
    assert default_name("go.etcd.io/etcd/server/v3", ETCD) == "server"
    assert default_name("helm.sh/helm/v4/cmd/helm", ETCD) == "helm"
    assert default_name(".", ETCD) == "etcd"


def test_what_has_not_been_built_is_named(cache):
    assert missing_modules() == list(MODULES)
    module_folder(ETCD).mkdir(parents=True)
    assert ETCD not in missing_modules()
    with pytest.raises(ClusterError, match="kubelet has not been built: run hack/cluster build"):
        program(KUBERNETES, "kubelet")


def test_an_entry_of_the_cache_is_whole_or_not_there(cache):
    with pytest.raises(IsADirectoryError), filling(cache / "entry") as folder:
        folder.write_text("fails half way")
    assert list(cache.iterdir()) == []
    with filling(cache / "entry") as folder:
        (folder / "whole").touch()
    assert [path.name for path in cache.glob("*/*")] == ["whole"]


def test_what_a_killed_build_left_is_swept_and_a_running_one_is_left_alone(cache):
    with filling(cache / "entry") as running:
        killed = cache / ".entry.4194305.abc"  # above the highest pid that Linux gives
        killed.mkdir()
        sweep()
        assert running.exists()
        assert not killed.exists()


def test_a_second_builder_of_the_same_thing_does_no_harm(cache):
    with filling(cache / "entry") as slow:
        (slow / "slow").touch()
        with filling(cache / "entry") as fast:
            (fast / "fast").touch()
    assert [path.name for path in (cache / "entry").iterdir()] == ["fast"]


def test_versions_of_go_are_compared_as_numbers():
    assert parse_version("go1.26.10") > parse_version("1.26.9") > parse_version("go1.26")
    assert needed_go() >= (1, 26, 0)
    with pytest.raises(ValueError, match="no version"):
        parse_version("devel")


def test_missing_packages_are_named_to_whoever_cannot_install_them(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match=r"apt-get install -y libfoo-dev$"):
        require([Need("libfoo-dev", lambda: False), Need("present", lambda: True)])
