"""The yardstick of a snapshot: one memcpy, on one thread, of as many bytes into memory that is just as fresh.

A park reads device memory and writes to anonymous memory that the process never had, so the kernel has to find and
clear it meanwhile. A restore writes to device memory, which exists but is mapped anew. The yardstick's device memory is
of the emulator's own making, and huge pages are asked for where the emulator asks for them.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gpu_emulator.arena import PAGE, Arena

_MADV_POPULATE_WRITE = 23


class Yardstick:
    """Times copies of `size` bytes, a multiple of the device's page."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._device = Arena("bench-device", size)
        self._device.make_present([(0, size // PAGE)])
        self._host = _private(size)
        ctypes.memset(_address(self._host), 0x5A, size)

    def park(self) -> float:
        """Seconds to copy device memory in use into private memory that was never touched."""
        with self._mapped() as source:
            start = time.perf_counter()
            with _private(self._size) as target:
                ctypes.memmove(_address(target), source, self._size)
                return time.perf_counter() - start

    def restore(self) -> float:
        """Seconds to copy private memory into device memory that is mapped for the copy."""
        start = time.perf_counter()
        with self._mapped() as target:
            ctypes.memmove(target, _address(self._host), self._size)
            return time.perf_counter() - start

    @contextmanager
    def _mapped(self) -> Iterator[int]:
        """The address of the device memory, at a multiple of its page, as huge pages need it."""
        with mmap.mmap(self._device.fd, self._size) as mapping:
            mapping.madvise(mmap.MADV_HUGEPAGE)
            mapping.madvise(_MADV_POPULATE_WRITE)
            yield _address(mapping)


def _private(size: int) -> mmap.mmap:
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))
