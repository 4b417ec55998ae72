"""The image that holds the namespaces of every pod: one static program."""

import hashlib
from functools import partial
from pathlib import Path

from kube_cluster.archives import Image, Layer, add_bytes, write_archive
from kube_cluster.cache import cache_folder, filling
from kube_cluster.machine import run
from kube_cluster.node_files import PAUSE_IMAGE
from kube_cluster.toolchain import TO_BUILD, require

_SOURCE = Path(__file__).with_name("pause.c")


def pause_image() -> Path:
    """The archive; built when it is not in the cache."""
    entry = cache_folder() / f"pause-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}"
    if not entry.exists():
        require(TO_BUILD)
        with filling(entry) as folder:
            run(["gcc", "-Os", "-static", "-s", "-Wall", "-Wextra", "-o", folder / "pause", _SOURCE])
            content = (folder / "pause").read_bytes()
            layer = Layer.make(folder, partial(add_bytes, name="pause", content=content, mode=0o755))
            write_archive(Image(PAUSE_IMAGE, [layer], ["/pause"]), folder / "image.tar")
    return entry / "image.tar"
