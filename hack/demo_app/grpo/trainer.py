"""A training run of GRPO: what happens on the device in each phase. All state between phases lies in device memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpo.device import Cuda, DeviceArray
from grpo.learning import Batch, Hyperparameters, Moments, group_advantages, learn
from grpo.policy import Floats, Shape, Tokens, decisions, decode, encode, initial, sample
from grpo.ranks import Ranks
from grpo.tasks import TASKS, dataset

CHUNK = 4 << 20  # elements of the pool that are written or read at once


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how. The same recipe gives the same weights, to the last bit.

    Attributes:
        task, seed: the data set; the seed also starts the policy and its sampling.
        prompts, group: prompts of one step of a rank, and answers to each.
        memory_share: part of the device's memory that the run occupies; what parameters and optimizer leave of it is a
            pool for rollouts, taken once at the start as inference engines do (`gpu_memory_utilization`).
        memory: the same in bytes, for runs that are to be the same on any device; 0 leaves it to `memory_share`.
    """

    task: str
    seed: int
    prompts: int = 16
    group: int = 16
    memory_share: float = 0.65
    memory: int = 0
    shape: Shape = field(default_factory=lambda: Shape(prompt=3, answer=3, hidden=896))
    hyper: Hyperparameters = field(default_factory=lambda: Hyperparameters(rate=4e-4))


@dataclass(frozen=True)
class Fingerprints:
    """SHA-256 of the final state, in hexadecimal: the weights, and all that the run has in device memory."""

    weights: str
    device: str


class Trainer:
    """The run, or one rank's share of it. Every method but `device_bytes` needs the device; `load` comes first."""

    def __init__(self, recipe: Recipe, ranks: Ranks) -> None:
        self.recipe = recipe
        self._ranks = ranks
        self._dataset = dataset(recipe.task, recipe.seed)
        self._arrays: dict[str, DeviceArray] = {}

    def load(self) -> None:
        """Takes the memory and writes the initial state.

        Raises:
            CudaError: CUDA_ERROR_OUT_OF_MEMORY when the device has not enough left.
        """
        self._cuda = Cuda()
        count = self.recipe.shape.parameters
        for name in ("weights", "mean", "square"):
            self._arrays[name] = DeviceArray(self._cuda, count, np.float32)
        self._arrays["updates"] = DeviceArray(self._cuda, 1, np.int64)
        wanted = self.recipe.memory or int(self.recipe.memory_share * self._cuda.total_memory())
        room = (wanted - self.device_bytes()) // 4
        self._arrays["pool"] = DeviceArray(self._cuda, room, np.float32)
        self._write_initial_state()

    def device_bytes(self) -> int:
        """Device memory in use, in bytes."""
        return sum(array.nbytes for array in self._arrays.values())

    def generate(self, step: int) -> list[tuple[int, str]]:
        """Samples a group of answers to each of the step's prompts: (number of the task, text)."""
        recipe, weights = self.recipe, self._read("weights")
        share = self._share(step)
        numbers = np.repeat(np.arange(share * recipe.prompts, (share + 1) * recipe.prompts), recipe.group)
        answers, log_probs = sample(weights, recipe.shape, self._prompts(step), self._rng(1, share))
        self._arrays["pool"].write(_packed(answers, log_probs), self._place(step))
        return [(int(number), decode(answer)) for number, answer in zip(numbers, answers, strict=True)]

    def train(self, step: int, rewards: list[float]) -> float:
        """Learns from the step's rollouts and their rewards (in the order of the answers). Returns the mean loss."""
        recipe = self.recipe
        weights, moments = self._read("weights"), Moments(*(self._read(name) for name in ("mean", "square", "updates")))
        batch = self._batch(step, np.array(rewards, np.float32))
        rng = self._rng(2, self._share(step))
        loss = learn(weights, moments, batch, shape=recipe.shape, hyper=recipe.hyper, rng=rng, ranks=self._ranks)
        for name, value in (("weights", weights), *vars(moments).items()):
            self._arrays[name].write(value)
        return loss

    def finish(self) -> Fingerprints:
        """Fingerprints of the final state; then the memory is given back."""
        weights, everything = hashlib.sha256(self._read("weights")), hashlib.sha256()
        for array in self._arrays.values():
            for start in range(0, array.length, CHUNK):
                everything.update(array.read(start, min(CHUNK, array.length - start)).data)
        for array in self._arrays.values():
            array.free()
        self._cuda.release()
        return Fingerprints(weights.hexdigest(), everything.hexdigest())

    def _write_initial_state(self) -> None:
        self._arrays["weights"].write(initial(self.recipe.shape, self._rng(0)))
        for name in ("mean", "square", "updates"):
            array = self._arrays[name]
            array.write(np.zeros(array.length, array.dtype))
        pool, rng = self._arrays["pool"], self._rng(3)
        for start in range(0, pool.length, CHUNK):  # so that a part of it that went lost would be seen in the end
            pool.write(rng.random(min(CHUNK, pool.length - start), np.float32), start)

    def _read(self, name: str) -> Any:
        return self._arrays[name].read()

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.recipe.seed, *purpose])

    def _share(self, step: int) -> int:
        """Which part of the data set, of `prompts` tasks each, is this rank's in that step."""
        return step * self._ranks.size + self._ranks.rank

    def _prompts(self, step: int) -> Tokens:
        task, count = TASKS[self.recipe.task], self.recipe.prompts
        questions = [self._dataset[self._share(step) * count + i]["question"] for i in range(count)]
        encoded = [encode(task.prompt(question), self.recipe.shape.prompt) for question in questions]
        return np.repeat(np.stack(encoded), self.recipe.group, axis=0)

    def _place(self, step: int) -> int:
        size = 2 * self.recipe.prompts * self.recipe.group * self.recipe.shape.answer
        return size * (step % (self._arrays["pool"].length // size))

    def _batch(self, step: int, rewards: Floats) -> Batch:
        recipe = self.recipe
        shape = (recipe.prompts * recipe.group, recipe.shape.answer)
        answers, log_probs = _unpacked(self._arrays["pool"].read(self._place(step), 2 * shape[0] * shape[1]), shape)
        advantages = group_advantages(rewards.reshape(recipe.prompts, recipe.group)).reshape(-1, 1)
        rows, real = decisions(self._prompts(step), answers)
        spread = np.broadcast_to(advantages, shape)
        return Batch(rows[real.ravel()], answers[real], log_probs[real], spread[real])


def _packed(answers: Tokens, log_probs: Floats) -> Floats:
    return np.concatenate([answers.astype(np.float32).ravel(), log_probs.ravel()])


def _unpacked(flat: Floats, shape: tuple[int, int]) -> tuple[Tokens, Floats]:
    answers, log_probs = flat.reshape(2, *shape)
    return answers.astype(np.int64), log_probs
