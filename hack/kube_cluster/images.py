"""Builds the images of the product and of the RL job. After a change of our code only the thin last layer is new."""

import compileall
import platform
import shutil
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from py_compile import PycInvalidationMode

from kube_cluster.archives import Image, Layer, add_bytes, add_link, add_tree, write_archive
from kube_cluster.dependencies import dependency_layer
from kube_cluster.interpreter import PACKAGES, base_layer
from kube_cluster.node import WorkerNode

PRODUCT_IMAGE = "docker.io/library/timeslice:dev"
JOB_IMAGE = "docker.io/library/timeslice-job:dev"
_ROOT = Path(__file__).resolve().parent.parent.parent
_JOB = "/opt/timeslice/job"
_USER = "65532:65532"
# As in deployments/images: links to the two libraries of the host's driver, in each place where it may have them.
_DRIVER_PLACES = (
    "usr/lib64",
    f"usr/lib/{platform.machine()}-linux-gnu",
    "lib64",
    f"lib/{platform.machine()}-linux-gnu",
)


@contextmanager
def images() -> Iterator[list[Image]]:
    """Both images; their last layers are there for as long as the block lasts. Works in .venv."""
    with tempfile.TemporaryDirectory(prefix="timeslice-images-") as scratch:
        product = Layer.make(_new(scratch, "product"), _add_product)
        job = Layer.make(_new(scratch, "job"), _add_job)
        yield [
            Image(
                PRODUCT_IMAGE,
                [base_layer(), dependency_layer("timeslice[node,orchestrator]"), product],
                ["timeslice"],
                environment={"LD_LIBRARY_PATH": ":".join(map(_driver_folder, _DRIVER_PLACES)), "PYTHONUNBUFFERED": "1"},
                command=["--help"],
                user=_USER,
            ),
            Image(
                JOB_IMAGE,
                [base_layer(), dependency_layer("timeslice", "numpy", "pyyaml", alone=["reasoning-gym"]), product, job],
                ["python3", "-m", "grpo"],
                environment={"PYTHONPATH": _JOB, "PYTHONUNBUFFERED": "1"},
                user=_USER,
            ),
        ]


def write_images(folder: Path) -> list[Path]:
    """Whole archives in the folder, which anybody can load."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with images() as made:
        for image in made:
            paths.append(folder / f"{image.reference.rsplit('/', 1)[-1].partition(':')[0]}.tar")
            write_archive(image, paths[-1])
    return paths


def load_images(nodes: Iterable[WorkerNode]) -> None:
    """Brings both images to the nodes; only what they do not have is sent."""
    with images() as made, tempfile.TemporaryDirectory(prefix="timeslice-images-") as scratch:
        for node in nodes:
            known = node.blobs()
            for index, image in enumerate(made):
                archive = Path(scratch) / f"{node.name}-{index}.tar"
                write_archive(image, archive, known=known)
                node.load(archive)
                archive.unlink()
                known |= {layer.digest for layer in image.layers}


def _driver_folder(place: str) -> str:
    return f"/opt/driver/{place}"


def _new(scratch: str, name: str) -> Path:
    folder = Path(scratch) / name
    folder.mkdir()
    return folder


def _add_product(archive: tarfile.TarFile) -> None:
    """The packages of the wheel, its metadata and its commands."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        _add_compiled(archive, _ROOT / package, PACKAGES)
    installed = distribution(project["project"]["name"])
    for file in installed.files or ():
        if file.parts[0].endswith(".dist-info") and file.name in ("METADATA", "entry_points.txt", "WHEEL"):
            add_bytes(archive, f"{PACKAGES}/{file}".lstrip("/"), file.read_binary())
    for place in _DRIVER_PLACES:
        for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
            add_link(archive, f"{_driver_folder(place)}/{library}".lstrip("/"), f"/driver-root/{place}/{library}")
    for name, target in project["project"]["scripts"].items():
        module, _, function = target.partition(":")
        script = f"#!/usr/local/bin/python3\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        add_bytes(archive, f"usr/local/bin/{name}", script.encode(), mode=0o755)


def _add_job(archive: tarfile.TarFile) -> None:
    _add_compiled(archive, _ROOT / "hack/demo_app/grpo", _JOB)


def _add_compiled(archive: tarfile.TarFile, package: Path, place: str) -> None:
    """With compiled files that are valid without a look at the source: containers start without compiling."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / package.name
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        goal = f"{place}/{package.name}"
        compileall.compile_dir(
            copy, quiet=1, ddir=goal, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH, workers=1
        )
        add_tree(archive, copy, goal.lstrip("/"), dated=False)
