import hashlib
import json
import tarfile
from functools import partial
from importlib.metadata import distribution

import pytest
from kube_cluster.archives import Image, Layer, add_bytes, add_tree, write_archive
from kube_cluster.dependencies import closure
from kube_cluster.errors import ClusterError


@pytest.fixture
def image(tmp_path):
    layers = []
    for name in ("lower", "upper"):
        (tmp_path / name).mkdir()
        layers.append(Layer.make(tmp_path / name, partial(add_bytes, name=name, content=name.encode())))
    return Image("docker.io/library/thing:dev", layers, ["/thing"], {"A": "1"})


def _content(path):
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}


def test_an_archive_leads_from_the_index_to_every_layer(image, tmp_path):
    write_archive(image, tmp_path / "image.tar")
    found = _content(tmp_path / "image.tar")
    entry = json.loads(found["index.json"])["manifests"][0]
    assert entry["annotations"]["io.containerd.image.name"] == "docker.io/library/thing:dev"
    manifest = json.loads(_blob(found, entry))
    configuration = json.loads(_blob(found, manifest["config"]))
    assert configuration["config"]["Entrypoint"] == ["/thing"]
    assert "A=1" in configuration["config"]["Env"]
    assert [layer["digest"] for layer in manifest["layers"]] == configuration["rootfs"]["diff_ids"]
    assert all(_blob(found, layer) for layer in manifest["layers"])


def _blob(found, descriptor):
    content = found[f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"]
    assert len(content) == descriptor["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
    return content


def test_layers_that_are_known_are_left_out(image, tmp_path):
    lower, upper = image.layers
    write_archive(image, tmp_path / "image.tar", known={lower.digest})
    found = _content(tmp_path / "image.tar")
    assert f"blobs/sha256/{lower.digest}" not in found
    assert f"blobs/sha256/{upper.digest}" in found


def test_a_layer_is_read_again_as_it_was_made(image):
    assert Layer.read(image.layers[0].path.parent) == image.layers[0]


def test_a_tree_is_added_without_what_is_unwanted(tmp_path):
    for name in ("a.py", "b.so", "tests/c.py"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).touch()
    with tarfile.open(tmp_path / "layer.tar", "w") as archive:
        add_tree(archive, tmp_path / "tree", "opt", leave_out=["tests", "*.so"])
        assert archive.getnames() == ["opt", "opt/a.py"]


def test_an_image_gets_what_its_packages_require_and_no_more():
    client = closure(["timeslice"])
    assert {"timeslice", "grpcio", "protobuf"} <= set(client)
    assert "pytest" not in client
    assert "nvidia-ml-py" in closure(["timeslice[node]"])
    assert client["grpcio"].version == distribution("grpcio").version


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(ClusterError, match="no-such-package is not installed"):
        closure(["no-such-package"])
