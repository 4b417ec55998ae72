"""Where built things are kept: outside the repository, one folder each, complete or not there."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """``$TIMESLICE_CLUSTER_CACHE``, else timeslice-cluster in the user's cache folder."""
    own = os.environ.get("TIMESLICE_CLUSTER_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "timeslice-cluster"


@contextmanager
def filling(entry: Path) -> Iterator[Path]:
    """A private folder that becomes ``entry`` when the block succeeds, and is removed when it does not.

    What an earlier run left behind when it was killed is removed by ``sweep``.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=entry.parent, prefix=f".{entry.name}.{os.getpid()}."))
    partial.chmod(0o755)
    try:
        yield partial
        if not entry.exists():  # somebody else may have been faster; theirs is as good
            partial.rename(entry)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sweep() -> None:
    """Removes what killed runs left half done."""
    for partial in cache_folder().glob(".*.*.*"):
        pid = partial.name.rsplit(".", 2)[1]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(partial, ignore_errors=True)
