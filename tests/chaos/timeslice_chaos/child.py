"""`python -m timeslice_chaos.child LOGS JOB_ID SECONDS`: a further process of a job, which uses the device a little."""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path

from timeslice_chaos.log import Log

_BYTES = 1 << 20


def main() -> int:
    """Holds a context and a little memory until its time is over, or its job ends."""
    folder, job_id, seconds = sys.argv[1:]
    log = Log(Path(folder), "job")
    log.say("job", job=job_id)
    cuda = ctypes.CDLL("libcuda.so.1")
    address = ctypes.c_uint64()
    codes = [
        cuda.cuInit(0),
        cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0),
        cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(_BYTES)),
    ]
    log.say("settled", codes=codes)
    time.sleep(float(seconds))
    log.say("ends")
    return 0


if __name__ == "__main__":
    sys.exit(main())
