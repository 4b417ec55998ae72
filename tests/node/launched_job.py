"""Programs as `cuda-checkpoint --launch-job` starts them."""

from __future__ import annotations

import os
import weakref


class Launch:
    """One launch; all that is started by its prefix belongs together."""

    def __init__(self) -> None:
        file = os.memfd_create("job")
        weakref.finalize(self, os.close, file)
        status = os.fstat(file)
        self.key = f"{status.st_dev}:{status.st_ino}"
        opened = f"exec 9<>/proc/{os.getpid()}/fd/{file}"
        self.prefix = ("sh", "-c", f'{opened}; export CUDA_CHECKPOINT_JOB_FILE=/proc/self/fd/9; exec "$@"', "sh")
