from __future__ import annotations

import numpy as np
import pytest
from grpo.learning import Batch, clipped_loss
from grpo.policy import END, Floats, Shape, decisions, decode, encode, forward, initial, sample

SMALL = Shape(prompt=3, answer=2, embedding=3, hidden=5)


def small_policy(seed: int = 1) -> Floats:
    return initial(SMALL, np.random.default_rng(seed)).astype(np.float64)


def some_batch(policy: Floats, rng: np.random.Generator) -> Batch:
    rows = rng.integers(0, 14, (6, SMALL.row))
    chosen = rng.integers(0, 14, 6)
    log_probs = forward(policy, SMALL, rows).log_probs[np.arange(6), chosen]
    return Batch(rows, chosen, log_probs + rng.uniform(-0.4, 0.4, 6), rng.standard_normal(6))


def test_the_gradient_is_the_slope_of_the_clipped_objective_in_every_parameter() -> None:
    policy = small_policy()
    batch = some_batch(policy, np.random.default_rng(2))
    _, gradient = clipped_loss(policy, SMALL, batch, 0.2)
    slopes = np.zeros_like(policy)
    for i in range(len(policy)):
        step = np.zeros_like(policy)
        step[i] = 1e-6
        above, below = (clipped_loss(policy + sign * step, SMALL, batch, 0.2)[0] for sign in (1, -1))
        slopes[i] = (above - below) / 2e-6
    assert np.abs(slopes).max() > 0.01
    np.testing.assert_allclose(gradient, slopes, atol=1e-7)


@pytest.mark.parametrize(("advantage", "ratio"), [(1.0, 1.5), (-1.0, 0.5)])
def test_a_decision_that_has_moved_beyond_the_clip_gives_no_gradient(advantage: float, ratio: float) -> None:
    policy = small_policy()
    rows, chosen = np.zeros((1, SMALL.row), np.int64), np.array([3])
    before = forward(policy, SMALL, rows).log_probs[0, 3:4] - np.log(ratio)
    _, gradient = clipped_loss(policy, SMALL, Batch(rows, chosen, before, np.array([advantage])), 0.2)
    assert not gradient.any()


def test_the_sampler_reports_the_log_probabilities_that_the_learner_recomputes() -> None:
    policy = small_policy()
    prompts = np.stack([encode(text, SMALL.prompt) for text in ("1,2", "77", "9")] * 20)
    answers, log_probs = sample(policy, SMALL, prompts, np.random.default_rng(3))
    rows, real = decisions(prompts, answers)
    again = forward(policy, SMALL, rows[real.ravel()]).log_probs
    chosen = answers[real]
    np.testing.assert_allclose(again[np.arange(len(chosen)), chosen], log_probs[real], atol=1e-6)


def test_answers_follow_the_policy_at_temperature_one() -> None:
    policy = small_policy()
    prompts = np.repeat(encode("1,2", SMALL.prompt)[None], 4000, axis=0)
    answers, _ = sample(policy, SMALL, prompts, np.random.default_rng(4))
    row = np.concatenate([prompts[:1], np.full((1, SMALL.answer), END)], axis=1)
    wanted = np.exp(forward(policy, SMALL, row).log_probs[0])
    seen = np.bincount(answers[:, 0], minlength=len(wanted)) / len(answers)
    assert np.abs(seen - wanted).max() < 0.03


def test_only_decisions_up_to_the_end_are_learned_from() -> None:
    answers = np.array([[END, END], [4, END], [4, 5]])
    _, real = decisions(np.zeros((3, 3), np.int64), answers)
    assert real.tolist() == [[True, False], [True, True], [True, True]]


def test_text_goes_through_characters_and_back() -> None:
    assert decode(encode("7*8", 5)) == "7*8"
    assert decode(np.array([1, END, 2])) == "1"
    with pytest.raises(ValueError, match="more than 2 characters"):
        encode("123", 2)
