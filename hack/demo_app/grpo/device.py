"""Device memory through libcuda and nothing else: the CUDA driver API by ctypes, and arrays that live there.

There is no compiler for kernels here, so numpy plays the kernel: a phase reads its arrays from the device at its start
and writes them back at its end. Between phases the device has the only copy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

OUT_OF_MEMORY = 2


class CudaError(Exception):
    """A call of the driver failed. `name` is CUDA's own, such as CUDA_ERROR_OUT_OF_MEMORY."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.code = code
        self.name = name


class Cuda:
    """Device 0, its primary context current in the thread that made this object."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))
        self._device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self.call("cuCtxSetCurrent", context)

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function of the driver. Raises CudaError when it does not succeed."""
        code = getattr(self._lib, function)(*arguments)
        if code != 0:
            name = ctypes.c_char_p()
            self._lib.cuGetErrorName(code, ctypes.byref(name))
            raise CudaError(function, code, (name.value or b"unknown").decode())

    def total_memory(self) -> int:
        """Of the device, in bytes."""
        total = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), self._device)
        return total.value

    def release(self) -> None:
        """Lets the context go; what is still allocated in it goes too."""
        self.call("cuDevicePrimaryCtxRelease_v2", self._device)


class DeviceArray:
    """A one-dimensional array in device memory."""

    def __init__(self, cuda: Cuda, length: int, dtype: Any) -> None:
        self._cuda = cuda
        self.length = length
        self.dtype = np.dtype(dtype)
        self._pointer = ctypes.c_uint64()
        cuda.call("cuMemAlloc_v2", ctypes.byref(self._pointer), ctypes.c_size_t(self.nbytes))

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self.length * self.dtype.itemsize)

    def write(self, host: NDArray[Any], start: int = 0) -> None:
        """Copies to the device, from element `start` on."""
        if host.dtype != self.dtype or start + host.size > self.length:
            raise ValueError(f"{host.size} x {host.dtype} at {start} do not fit {self.length} x {self.dtype}")
        host = np.ascontiguousarray(host)
        self._cuda.call("cuMemcpyHtoD_v2", self._at(start), host.ctypes.data_as(ctypes.c_void_p), _size(host))

    def read(self, start: int = 0, length: int | None = None) -> NDArray[Any]:
        """Copies from the device; all of it from `start` on, or `length` elements."""
        length = self.length - start if length is None else length
        if start < 0 or start + length > self.length:
            raise ValueError(f"{length} elements at {start} are not in {self.length}")
        host = np.empty(length, self.dtype)
        self._cuda.call("cuMemcpyDtoH_v2", host.ctypes.data_as(ctypes.c_void_p), self._at(start), _size(host))
        return host

    def free(self) -> None:
        """Gives the memory back."""
        self._cuda.call("cuMemFree_v2", self._pointer)

    def _at(self, start: int) -> ctypes.c_uint64:
        return ctypes.c_uint64(self._pointer.value + start * self.dtype.itemsize)


def _size(host: NDArray[Any]) -> ctypes.c_size_t:
    return ctypes.c_size_t(host.nbytes)
