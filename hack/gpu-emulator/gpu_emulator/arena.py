"""The memory of one device: a memfd of the device's capacity, handed out in pages of 2 MiB."""

import ctypes
import mmap
import os

PAGE = 2 << 20
_MADV_COLLAPSE = 25
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

Extent = tuple[int, int]  # first page, number of pages


class PageAllocator:
    """First fit over a sorted list of free extents. Freed pages keep their content, as on a device."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.free_pages = pages
        self._free: list[Extent] = [(0, pages)] if pages else []

    def take(self, count: int) -> list[Extent] | None:
        """Extents of together ``count`` pages, or None and nothing taken when fewer are free."""
        if count > self.free_pages:
            return None
        taken: list[Extent] = []
        missing = count
        while missing:
            first, length = self._free.pop(0)
            used = min(length, missing)
            taken.append((first, used))
            if used < length:
                self._free.insert(0, (first + used, length - used))
            missing -= used
        self.free_pages -= count
        return taken

    def give_back(self, extents: list[Extent]) -> None:
        merged: list[Extent] = []
        for first, length in sorted(self._free + extents):
            if merged and merged[-1][0] + merged[-1][1] == first:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((first, length))
        self._free = merged
        self.free_pages += sum(length for _, length in extents)


class Arena:
    """Pages with bytes behind them.

    The daemon makes a page present when it is first handed out: shared memory is charged to the cgroup of the process
    that touches it first, and device memory must never be charged to a job.
    """

    def __init__(self, name: str, capacity: int) -> None:
        """``capacity`` in bytes, rounded down to whole pages."""
        self.allocator = PageAllocator(capacity // PAGE)
        size = self.allocator.pages * PAGE
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        self._address = _map_aligned(self.fd, size)
        self._present: set[int] = set()

    @property
    def total(self) -> int:
        return self.allocator.pages * PAGE

    @property
    def used(self) -> int:
        return (self.allocator.pages - self.allocator.free_pages) * PAGE

    def missing(self, extents: list[Extent]) -> list[Extent]:
        """Those parts of the extents that have no memory behind them yet."""
        return [
            (page, 1) for first, length in extents for page in range(first, first + length) if page not in self._present
        ]

    def make_present(self, extents: list[Extent]) -> None:
        """Blocking: clears and touches pages. MemoryError when the machine (or the daemon's cgroup) has none left."""
        for first, length in _joined(self.missing(extents)):
            start, size = first * PAGE, length * PAGE
            try:
                self._make_huge(start, size)
                os.posix_fallocate(self.fd, start, size)
            except OSError as error:
                raise MemoryError(f"the machine has no memory for {size} bytes of an emulated device") from error
            self._present.update(range(first, first + length))

    def _make_huge(self, start: int, size: int) -> None:
        """Asks for huge pages, which make the copies of a checkpoint much faster; not having them is no error.

        MADV_COLLAPSE gives them also where the machine's setting for shared memory is "never", as long as there is
        something to collapse: hence one byte in each page.
        """
        for offset in range(start, start + size, PAGE):
            os.posix_fallocate(self.fd, offset, 1)
        _libc.madvise(self._address + start, size, _MADV_COLLAPSE)


def _map_aligned(fd: int, size: int) -> int:
    """Maps the file at a multiple of the page size, without which there are no huge pages; returns the address."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    reserved = _libc.mmap(None, size + PAGE, 0, flags | _MAP_NORESERVE, -1, 0)
    address: int = -(-reserved // PAGE) * PAGE
    mapped = _libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
    if size and mapped != address:
        raise MemoryError(f"no address space for {size} bytes of an emulated device")
    _libc.madvise(address, size, mmap.MADV_HUGEPAGE)
    return address


def _joined(extents: list[Extent]) -> list[Extent]:
    joined: list[Extent] = []
    for first, length in extents:
        if joined and sum(joined[-1]) == first:
            joined[-1] = (joined[-1][0], joined[-1][1] + length)
        else:
            joined.append((first, length))
    return joined
