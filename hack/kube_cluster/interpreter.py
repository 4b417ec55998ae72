"""The base of our images: this machine's Python interpreter, a shell and some tools, with the libraries they need.

No distribution and no registry: what runs here runs there, byte for byte, in the places where it is here.
"""

import functools
import hashlib
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path

from kube_cluster.archives import Layer, add_bytes, add_link, add_tree
from kube_cluster.cache import cache_folder, filling
from kube_cluster.machine import run

PACKAGES = "/opt/timeslice/packages"  # of all images: what they add to Python's path
_TOOLS = """
bash cat chmod cp cut date df dirname du echo env expr false find grep head hostname id kill ln ls mkdir mktemp mount mv
nproc printenv printf ps pwd readlink rm sed seq sh sleep sort stat sync tail tee test timeout touch tr true tty umount
uname wc whoami xargs
"""
_UNWANTED = """
test tests idlelib turtledemo tkinter lib2to3 site-packages dist-packages ensurepip _tkinter*.so _test*.so
"""
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def base_layer() -> Layer:
    """The layer; made when it is not in the cache."""
    entry = cache_folder() / f"image-base-{_digest()}"
    if not entry.exists():
        with filling(entry) as folder:
            Layer.make(folder, _fill)
    return Layer.read(entry)


def _digest() -> str:
    found = hashlib.sha256(Path(__file__).read_bytes())
    found.update(f"{sys.version}{sys.base_prefix}{platform.platform()}".encode())
    return found.hexdigest()[:16]


def _fill(archive: tarfile.TarFile) -> None:
    for folder in ("tmp", "var/tmp", "run", "root", "etc", "usr/local/bin", "usr/bin", "usr/lib", "usr/lib64"):
        member = tarfile.TarInfo(folder)
        member.type, member.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
        archive.addfile(member)
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            add_link(archive, name, f"usr/{name}")
    for name, content in _FILES.items():
        add_bytes(archive, name, content.encode())
    interpreter = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    standard = Path(sysconfig.get_path("stdlib"))
    add_tree(archive, standard, str(standard).lstrip("/"), leave_out=[*_UNWANTED.split(), _static_library_folder()])
    tools = [Path(found) for tool in _TOOLS.split() if (found := shutil.which(tool, path="/usr/bin:/bin"))]
    extensions = [file for file in (standard / "lib-dynload").glob("*.so") if "tkinter" not in file.name]
    add_files(archive, {interpreter, *tools, *libraries([interpreter, *tools, *extensions])})
    for name in ("python3", "python"):
        add_link(archive, f"usr/local/bin/{name}", str(interpreter))
    add_bytes(archive, f"{_site_folder(interpreter)}/timeslice.pth", f"{PACKAGES}\n".encode())


def _static_library_folder() -> str:
    return Path(sysconfig.get_config_var("LIBPL") or "config").name


def _site_folder(interpreter: Path) -> str:
    """Where the interpreter looks for .pth files."""
    return run([interpreter, "-I", "-c", "import site; print(site.getsitepackages()[0].lstrip('/'))"]).strip()


def libraries(files: Iterable[Path]) -> set[Path]:
    """The shared libraries that these programs and extensions load, and the loader."""
    listed = list(files)
    found: set[Path] = set()
    for start in range(0, len(listed), 100):
        found |= _linked(tuple(listed[start : start + 100]))
    return found


def _linked(files: tuple[Path, ...]) -> set[Path]:
    # Scripts and static programs among them make its status a failure, and are what they are.
    said = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False, timeout=120).stdout
    words = [word for line in said.splitlines() if line.startswith("\t") for word in line.split()]
    return {Path(word) for word in words if word.startswith("/")}


@functools.cache
def _place(folder: Path) -> Path:
    return folder.resolve()


def add_files(archive: tarfile.TarFile, files: Iterable[Path]) -> None:
    """Each under its own path, what a link points to instead of the link."""
    for file in sorted(files):
        name = _place(file.parent) / file.name
        member = archive.gettarinfo(file.resolve(), str(name).lstrip("/"))
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        with file.open("rb") as content:
            archive.addfile(member, content)
