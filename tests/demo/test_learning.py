from __future__ import annotations

import numpy as np
from grpo.learning import Hyperparameters, Moments, adam_update, group_advantages


def test_advantages_are_deviations_from_the_group_in_its_own_standard_deviations() -> None:
    advantages = group_advantages(np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 4.0]], np.float32))
    np.testing.assert_allclose(advantages[0], [1, -1, -1, 1], rtol=1e-3)
    np.testing.assert_allclose(advantages[1], np.array([-1, -1, -1, 3]) / np.sqrt(3), rtol=1e-3)


def test_a_group_of_equal_rewards_teaches_nothing() -> None:
    assert not group_advantages(np.full((2, 8), 0.5, np.float32)).any()


def test_adam_makes_a_first_step_of_the_learning_rate_against_the_sign_of_the_gradient() -> None:
    weights = np.zeros(3, np.float32)
    moments = Moments(np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros(1, np.int64))
    adam_update(weights, np.array([5.0, -0.1, 0.0], np.float32), moments, Hyperparameters(rate=0.01))
    np.testing.assert_allclose(weights, [-0.01, 0.01, 0], rtol=1e-5)
    assert moments.updates[0] == 1


def test_adam_follows_its_published_recurrence() -> None:
    hyper, rng = Hyperparameters(rate=0.02), np.random.default_rng(7)
    weights = np.zeros(4, np.float32)
    moments = Moments(np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros(1, np.int64))
    theta, m, v = np.zeros(4), np.zeros(4), np.zeros(4)
    for t in range(1, 6):
        gradient = rng.standard_normal(4)
        adam_update(weights, gradient.astype(np.float32), moments, hyper)
        m = hyper.beta1 * m + (1 - hyper.beta1) * gradient
        v = hyper.beta2 * v + (1 - hyper.beta2) * gradient**2
        theta -= hyper.rate * (m / (1 - hyper.beta1**t)) / (np.sqrt(v / (1 - hyper.beta2**t)) + hyper.epsilon)
    np.testing.assert_allclose(weights, theta, rtol=1e-4)
