"""A training loop that takes turns: two lines make a phase hold its accelerators.

    timeslice up --group trainer-group                                              # once per machine
    timeslice run --job job-a --group trainer-group -- python examples/loop.py      # in one terminal
    timeslice run --job job-b --group trainer-group -- python examples/loop.py      # in another

Without a platform the client is off and the loop runs all the same.
"""

import hashlib
import random

from timeslice import OrchestratorClient

orchestrator = OrchestratorClient()
STEPS = 3


@orchestrator.on_accelerators(group_id="trainer-group")
def generate(step: int) -> list[int]:
    """Would sample answers from the policy."""
    return [random.Random(f"{step}-{number}").randrange(100) for number in range(4)]


def reward(answers: list[int]) -> list[float]:
    """Would run and score the answers; it needs no accelerator, so other jobs use them meanwhile."""
    return [hashlib.sha256(bytes([answer])).digest()[0] / 255 for answer in answers]


@orchestrator.on_accelerators(group_id="trainer-group")
def train(answers: list[int], rewards: list[float]) -> float:
    """Would take a policy-gradient step."""
    return sum(answer * value for answer, value in zip(answers, rewards, strict=True)) / len(answers)


for step in range(STEPS):
    answers = generate(step)
    loss = train(answers, reward(answers))
    print(f"step {step}: loss {loss:.3f}", flush=True)
