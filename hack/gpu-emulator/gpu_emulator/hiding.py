"""Copies of the libraries that lack some symbols, as the libraries of an older driver do."""

import fnmatch
import struct
from pathlib import Path

_SHT_DYNSYM = 11
_SECTION_TABLE_OFFSET = 0x28
_SECTION_ENTRY_SIZE = 0x3A


def _dynamic_names(image: bytes) -> tuple[int, int]:
    """Offset and size of the string table that the dynamic symbols of a 64-bit ELF file use."""
    (table,) = struct.unpack_from("<Q", image, _SECTION_TABLE_OFFSET)
    entry_size, count = struct.unpack_from("<HH", image, _SECTION_ENTRY_SIZE)
    sections = [struct.unpack_from("<IIQQQQII", image, table + index * entry_size) for index in range(count)]
    symbols = next(section for section in sections if section[1] == _SHT_DYNSYM)
    names = sections[symbols[6]]
    return names[4], names[5]


def without_symbols(image: bytes, patterns: list[str]) -> bytes:
    """The library with every exported name that matches a shell pattern made unfindable.

    The dynamic linker compares names after it has found their hash, so one changed letter is enough and nothing moves.
    """
    offset, size = _dynamic_names(image)
    names = image[offset : offset + size].split(b"\0")

    def is_hidden(name: bytes) -> bool:
        exported = name.startswith((b"cu", b"nvml"))
        return exported and any(fnmatch.fnmatchcase(name.decode(), pattern) for pattern in patterns)

    kept = [b"X" + name[1:] if is_hidden(name) else name for name in names]
    return image[:offset] + b"\0".join(kept) + image[offset + size :]


def hide_symbols(libraries: Path, patterns: list[str], folder: Path) -> Path:
    """Writes such copies of the libraries into ``folder`` and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    for library in libraries.glob("*.so.1"):
        (folder / library.name).write_bytes(without_symbols(library.read_bytes(), patterns))
    return folder
