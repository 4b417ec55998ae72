"""The yardstick of a snapshot: one memcpy of the same number of bytes into memory that is just as fresh.

A park writes to anonymous memory that the process never had, so the kernel has to find and clear it meanwhile. A
restore writes to device memory, which exists but is mapped anew; in the emulator it is a memfd. The yardsticks do the
same, with huge pages asked for where the emulator asks for them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager


def into_fresh_memory(size: int) -> float:
    """Seconds to copy `size` bytes out of shared memory in use into private memory that is touched for the first time."""
    with _device(size) as device, _shared(device, size) as source:
        _fill(source, size)
        start = time.perf_counter()
        with _private(size) as target:
            ctypes.memmove(_address(target), _address(source), size)
            return time.perf_counter() - start


def into_memory_mapped_anew(size: int) -> float:
    """Seconds to copy `size` bytes out of private memory into shared memory that exists and is mapped for the copy."""
    with _device(size) as device, _private(size) as source:
        _fill(source, size)
        with _shared(device, size) as pages:
            _fill(pages, size)
        start = time.perf_counter()
        with _shared(device, size) as target:
            ctypes.memmove(_address(target), _address(source), size)
            return time.perf_counter() - start


@contextmanager
def _device(size: int) -> Iterator[int]:
    descriptor = os.memfd_create("bench-device")
    try:
        os.ftruncate(descriptor, size)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _shared(descriptor: int, size: int) -> Iterator[mmap.mmap]:
    with mmap.mmap(descriptor, size) as mapping:
        yield mapping


@contextmanager
def _private(size: int) -> Iterator[mmap.mmap]:
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapping:
        mapping.madvise(mmap.MADV_HUGEPAGE)
        yield mapping


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def _fill(mapping: mmap.mmap, size: int) -> None:
    ctypes.memset(_address(mapping), 0x5A, size)
