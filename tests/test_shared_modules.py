"""The folders of the tests that have modules for one another lie on one path."""

import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_no_two_of_them_have_the_same_name() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    found = Counter(
        path.stem for folder in settings["pythonpath"] for path in (ROOT / folder).glob("*") if shared(path)
    )
    assert [name for name, count in found.items() if count > 1] == []


def shared(path: Path) -> bool:
    own = path.name == "conftest.py" or path.name.startswith("test_")
    return (path.suffix == ".py" and not own) or (path / "__init__.py").exists()
