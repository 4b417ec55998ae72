"""`python -m grpo --task gcd --seed 23 --steps 30`: one training job, or a rank of one as torchrun's variables say.

The loop below is all there is to taking turns: the phases that need the accelerator are one decorated function, and the
reward phase stays outside. Mode, job, group and address come from TIMESLICE_* in the environment; without them the same
program runs alone.

With `--wait` it loads everything, tells `ready`, and starts at the first byte from stdin, so that several jobs start
together. It ends when stdin ends, so that no job outlives the one who started it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: one core per job, and one order of additions

from timeslice import OrchestratorClient, RankedClient

from grpo import sandbox
from grpo.device import OUT_OF_MEMORY, CudaError
from grpo.ranks import Ranks
from grpo.tale import tell
from grpo.tasks import TASKS
from grpo.trainer import Fingerprints, Recipe, Trainer

EXIT_OUT_OF_MEMORY = 3


def run(recipe: Recipe, steps: int) -> None:
    """Trains for that many steps."""
    ranks = Ranks.from_environment()
    trainer = Trainer(recipe, ranks)
    orchestrator = RankedClient(OrchestratorClient(), rank=ranks.rank, world_size=ranks.size)

    @orchestrator.on_accelerators()
    def learn_and_answer(step: int, rewards: list[float]) -> list[tuple[int, str]] | Fingerprints:
        tell("holding", step=step)
        try:
            if step == 0:
                trainer.load()
                tell("loaded", device_bytes=trainer.device_bytes())
            else:
                tell("phase", phase="train", step=step - 1)
                trainer.train(step - 1, rewards)
            if step == steps:
                return trainer.finish()
            tell("phase", phase="generate", step=step)
            return trainer.generate(step)
        finally:
            tell("held", step=step)

    rewards: list[float] = []
    for step in range(steps + 1):
        tell("waiting", step=step)
        outcome = learn_and_answer(step, rewards)
        if isinstance(outcome, Fingerprints):
            tell("done", weights_sha256=outcome.weights, device_sha256=outcome.device)
            return
        tell("reward_begins", step=step)
        rewards = sandbox.rewards(recipe.task, recipe.seed, outcome)
        tell("reward", step=step, mean=sum(rewards) / len(rewards))


def _end_with_stdin() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock a waiting thread would keep at exit
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Parses the command line and trains. 0, or 3 when the device has not enough memory."""
    parser = argparse.ArgumentParser(prog="python -m grpo", description="A GRPO training job on one accelerator.")
    parser.add_argument("--task", choices=sorted(TASKS), required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=36)
    parser.add_argument("--memory-share", type=float, default=Recipe.memory_share, help="of the device, 0 to 1")
    parser.add_argument("--memory-mib", type=int, default=0, help="device memory to occupy, instead of a share of it")
    parser.add_argument("--wait", action="store_true", help="tell `ready`, and start at the first line from stdin")
    parser.add_argument("--core", type=int, metavar="N", help="stay on that CPU core, with all child processes")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    if options.wait:
        tell("ready")
        if not os.read(0, 1):
            return 0
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        memory = options.memory_mib << 20
        run(Recipe(options.task, options.seed, memory_share=options.memory_share, memory=memory), options.steps)
    except CudaError as error:
        if error.code != OUT_OF_MEMORY:
            raise
        tell("out_of_memory", error=error.name, message=str(error))
        return EXIT_OUT_OF_MEMORY
    return 0


if __name__ == "__main__":
    sys.exit(main())
