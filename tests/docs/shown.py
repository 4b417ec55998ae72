"""Finds the commands and programs that the documents show: `sh` is run here, `shell` on a cluster by tests/e2e."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])  # the emulator tests its own README
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a document: its language, its text, and where it stands."""

    document: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Document and line, for the test's name."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def snippets(language: str) -> list[Snippet]:
    """All blocks of a language, in order."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        for match in _FENCE.finditer(text):
            if match[1] == language:
                found.append(Snippet(document, text[: match.start()].count("\n") + 1, match[1], match[2]))
    return found


def commands(snippet: Snippet) -> list[str]:
    """The commands of a shell block: comments cut off, continued lines joined."""
    joined = snippet.text.replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
    return [re.sub(r"\s+", " ", line) for line in lines if line]
