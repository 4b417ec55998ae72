"""GRPO: advantages relative to the group of answers to one prompt, the clipped objective, and Adam.

Sources: Shao et al., DeepSeekMath (arXiv 2402.03300), section 4.1; Schulman et al., PPO (arXiv 1707.06347), equation 7;
Kingma and Ba, Adam (arXiv 1412.6980), algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo.policy import Floats, Shape, Tokens, backward, forward
from grpo.ranks import Ranks


@dataclass(frozen=True)
class Hyperparameters:
    """Of the learner. `epochs` passes over a step's answers, each in `minibatches` updates."""

    rate: float = 1.5e-3
    clip: float = 0.2
    epochs: int = 4
    minibatches: int = 4
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8


@dataclass(frozen=True)
class Batch:
    """Decisions of the sampler and what came of them; one entry per character that was chosen."""

    rows: Tokens  # (n, row)
    chosen: Tokens  # (n,)
    log_probs: Floats  # (n,) when they were chosen
    advantages: Floats  # (n,)


@dataclass(frozen=True)
class Moments:
    """Adam's state: running means of the gradient and its square, and how many updates were made. Updated in place."""

    mean: Floats
    square: Floats
    updates: NDArray[np.int64]  # (1,)


def group_advantages(rewards: Floats) -> Floats:
    """(r - mean) / (std + eps) within each group; rewards have one row per prompt. Equal rewards teach nothing: 0."""
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    return np.asarray(centred / (rewards.std(axis=1, keepdims=True) + 1e-4), np.float32)


def clipped_loss(flat: Floats, shape: Shape, batch: Batch, clip: float) -> tuple[float, Floats]:
    """-mean(min(ratio * A, clip(ratio, 1 - clip, 1 + clip) * A)) over the decisions, and its gradient in `flat`."""
    seen = forward(flat, shape, batch.rows)
    index = np.arange(len(batch.rows))
    ratio = np.exp(seen.log_probs[index, batch.chosen] - batch.log_probs)
    plain, clipped = ratio * batch.advantages, np.clip(ratio, 1 - clip, 1 + clip) * batch.advantages
    loss = -float(np.minimum(plain, clipped).mean())
    d_log_prob = (np.where(plain <= clipped, -plain, 0) / len(index)).astype(flat.dtype)
    d_logits = -np.exp(seen.log_probs) * d_log_prob[:, None]
    d_logits[index, batch.chosen] += d_log_prob
    return loss, backward(flat, shape, seen, d_logits)


def adam_update(flat: Floats, gradient: Floats, moments: Moments, hyper: Hyperparameters) -> None:
    """One step of Adam, in place."""
    moments.updates[0] += 1
    count = int(moments.updates[0])
    moments.mean[:] = hyper.beta1 * moments.mean + (1 - hyper.beta1) * gradient
    moments.square[:] = hyper.beta2 * moments.square + (1 - hyper.beta2) * gradient * gradient
    rate = np.float32(hyper.rate * np.sqrt(1 - hyper.beta2**count) / (1 - hyper.beta1**count))
    flat -= rate * moments.mean / (np.sqrt(moments.square) + np.float32(hyper.epsilon))


def learn(
    flat: Floats,
    moments: Moments,
    batch: Batch,
    *,
    shape: Shape,
    hyper: Hyperparameters,
    rng: np.random.Generator,
    ranks: Ranks,
) -> float:
    """All updates of one step, in place, each of the mean gradient of all ranks. Returns the mean loss of this one."""
    losses = []
    for _ in range(hyper.epochs):
        for part in np.array_split(rng.permutation(len(batch.rows)), hyper.minibatches):
            piece = Batch(batch.rows[part], batch.chosen[part], batch.log_probs[part], batch.advantages[part])
            loss, gradient = clipped_loss(flat, shape, piece, hyper.clip)
            adam_update(flat, ranks.mean(gradient), moments, hyper)
            losses.append(loss)
    return float(np.mean(losses))
