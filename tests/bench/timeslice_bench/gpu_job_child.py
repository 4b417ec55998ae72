"""A job that keeps bytes on the device, and says a checksum of them on request."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import zlib

from timeslice_bench.lifeline import lines, say

CHUNK = 64 << 20


class DeviceMemory:
    """One allocation on device 0, made and read through the driver API. CudaError names a call that failed."""

    def __init__(self, size: int) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self.size = size
        self._pointer = ctypes.c_uint64()
        context = ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self._call("cuCtxSetCurrent", context)
        self._call("cuMemAlloc_v2", ctypes.byref(self._pointer), ctypes.c_size_t(size))

    def fill(self) -> None:
        """Writes bytes that a lost or shifted page would change."""
        for offset in range(0, self.size, CHUNK):
            chunk = os.urandom(1 << 20) * (min(CHUNK, self.size - offset) >> 20)
            self._call("cuMemcpyHtoD_v2", self._at(offset), chunk, ctypes.c_size_t(len(chunk)))

    def checksum(self) -> int:
        """CRC-32 of all its bytes."""
        value = 0
        chunk = ctypes.create_string_buffer(CHUNK)
        for offset in range(0, self.size, CHUNK):
            length = min(CHUNK, self.size - offset)
            self._call("cuMemcpyDtoH_v2", chunk, self._at(offset), ctypes.c_size_t(length))
            value = zlib.crc32(memoryview(chunk)[:length], value)
        return value

    def _at(self, offset: int) -> ctypes.c_uint64:
        return ctypes.c_uint64(self._pointer.value + offset)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code != 0:
            raise CudaError(f"{name}: CUresult {code}")


class CudaError(Exception):
    """A driver call failed."""


async def main(size: int) -> None:
    """Serves the parent until it lets go."""
    memory = DeviceMemory(size)
    memory.fill()
    say(pid=os.getpid())
    async for _ in lines():
        say(checksum=memory.checksum())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
