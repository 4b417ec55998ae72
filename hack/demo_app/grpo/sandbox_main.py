"""Inside the sandbox: a fresh Python process runs some answers as programs and scores what they print.

Started by `grpo.sandbox` as `python -I -S sandbox_main.py` with an empty environment in a directory of its own. Each
answer is the expression of a one-line program, `print(ANSWER)`. Each program runs in a process of its own, which first
gives up root, all memory but a little, the right to open files and sockets, to write files and to start processes, and
which the kernel ends after a fraction of a second of CPU time. The verifier is loaded when all programs have ended.

Reads one JSON object from stdin: paths (to import from), task, seed, answers ([number of the task, text]
each), wall_s (how long a program may take that blocks instead of computing).
Writes one JSON object to stdout: rewards (in the order of the answers).
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
import time

CPU_S = 0.5  # of one program
MEMORY = 128 << 20  # address space that one program may add to that of the interpreter (bytes)
OUTPUT = 256  # longest output that is read (bytes)
NOBODY = 65534


class Programs:
    """Runs programs, one at a time. What they have in common is made once, since there are hundreds of them in a step.

    Args:
        wall_s: how long one may take that blocks instead of computing.
    """

    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s
        self._nothing = os.open(os.devnull, os.O_RDWR)
        self._limits = _limits()
        gc.disable()
        gc.freeze()  # so that programs copy fewer pages of this process
        compile("0", "warm-up", "eval")  # makes Python's table of syntax types once, instead of anew in every program

    def run(self, answer: str) -> str | None:
        """What the program prints; None when it fails, says too much, or takes more than its share."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(answer, writing)
        os.close(writing)
        try:
            printed = _read(reading, time.monotonic() + self._wall_s)
        finally:
            os.close(reading)
            if printed is None:
                os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        return printed if status == 0 else None

    def _become(self, answer: str, output: int) -> None:
        code = 1
        try:
            for number, descriptor in enumerate((self._nothing, output, self._nothing)):
                os.dup2(descriptor, number)
            os.closerange(3, 64)
            self._give_up_rights()
            exec(compile(f"print({answer})", "answer", "exec"), {"__name__": "__main__"})
            sys.stdout.flush()
            code = 0
        finally:
            os._exit(code)

    def _give_up_rights(self) -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # its signal ends the process, whatever Python is busy with
        for limit, most in self._limits:
            resource.setrlimit(limit, (most, most))


def _limits() -> list[tuple[int, int]]:
    statm = os.open("/proc/self/statm", os.O_RDONLY)
    used = int(os.read(statm, 100).split()[0]) * resource.getpagesize()
    os.close(statm)
    wanted = {
        resource.RLIMIT_CPU: 1,
        resource.RLIMIT_AS: used + MEMORY,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 0,
        resource.RLIMIT_CORE: 0,
    }
    hard = {limit: resource.getrlimit(limit)[1] for limit in wanted}
    return [(i, most if hard[i] == resource.RLIM_INFINITY else min(most, hard[i])) for i, most in wanted.items()]


def _read(reading: int, deadline: float) -> str | None:
    said = b""
    while len(said) <= OUTPUT:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        piece = os.read(reading, OUTPUT + 1)
        if not piece:
            return said.decode(errors="replace").strip()
        said += piece
    return None


def main() -> None:
    asked = json.load(sys.stdin)
    programs = Programs(asked["wall_s"])
    printed = [programs.run(text) for _, text in asked["answers"]]
    sys.path[:0] = asked["paths"]
    from grpo.tasks import dataset

    verifier = dataset(asked["task"], asked["seed"])
    entries = {number: verifier[number] for number in {number for number, _ in asked["answers"]}}
    scored = zip(asked["answers"], printed, strict=True)
    json.dump({"rewards": [verifier.score_answer(said, entries[number]) for (number, _), said in scored]}, sys.stdout)


if __name__ == "__main__":
    main()
