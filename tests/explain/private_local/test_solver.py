import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression

from mia_audit.explain.private_local.solver import Problem, descend, minimum


def problem_of(away: np.ndarray, target: np.ndarray, weights: np.ndarray) -> Problem:
    weighted = away * weights[:, None]
    return Problem(weighted.T @ away, weighted.T @ target, float(weights @ target**2), len(away))


def random_problem(seed: int, scale: float, rank: int = 3) -> tuple[Problem, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    away = random.standard_normal((40, rank)) @ random.standard_normal((rank, 3))
    target = scale * random.uniform(-1, 1, 40)
    parts = (away, target, random.random(40))
    return problem_of(*parts), parts


@pytest.mark.parametrize("seed", range(5))
def test_inside_the_ball_it_is_weighted_least_squares(seed):
    problem, (away, target, weights) = random_problem(seed, 0.3)
    fitted = LinearRegression(fit_intercept=False).fit(away, target, sample_weight=weights).coef_
    assert np.linalg.norm(fitted) < 1
    np.testing.assert_allclose(minimum(problem), fitted, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_on_the_ball_it_is_what_a_general_solver_finds(seed):
    problem, _ = random_problem(seed, 30.0)
    ball = {"type": "ineq", "fun": lambda phi: 1 - phi @ phi, "jac": lambda phi: -2 * phi}
    found = minimize(
        problem.loss, np.zeros(3), jac=problem.gradient, constraints=[ball], method="SLSQP", options={"ftol": 1e-15}
    )
    solved = minimum(problem)
    assert np.linalg.norm(solved) == pytest.approx(1)
    np.testing.assert_allclose(solved, found.x, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    rank=st.integers(1, 3),
    near=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_no_other_point_of_the_ball_is_better(seed, scale, rank, near):
    problem, _ = random_problem(seed, scale, rank)
    random = np.random.default_rng(seed)
    direction = random.standard_normal(3)
    solved = minimum(problem, near=near * direction / np.linalg.norm(direction))
    assert np.linalg.norm(solved) <= 1 + 1e-9
    others = random.standard_normal((200, 3))
    others /= np.maximum(1, np.linalg.norm(others, axis=1))[:, None]
    best = min(problem.loss(other) for other in [*others, *(solved + 1e-4 * others) / (1 + 1e-4)])
    assert problem.loss(solved) <= best + 1e-9 * max(1.0, problem.square / problem.records)


def test_among_equals_it_takes_the_nearest():
    away = np.array([[1.0, 0.0], [2.0, 0.0]])
    problem = problem_of(away, np.array([0.3, 0.6]), np.ones(2))
    np.testing.assert_allclose(minimum(problem, near=np.array([0.9, 0.4])), [0.3, 0.4], atol=1e-9)
    np.testing.assert_allclose(minimum(problem), [0.3, 0.0], atol=1e-9)


def test_without_noise_the_steps_end_at_the_minimum():
    for scale in (0.3, 3.0):
        problem, _ = random_problem(7, scale)
        phi = descend([problem], np.zeros((1, 3)), np.zeros((1, 4000, 3)), rate=1.0)[0]
        np.testing.assert_allclose(phi, minimum(problem), atol=1e-6)


def test_a_step_is_a_gradient_step_with_its_noise_and_stays_in_the_ball():
    problem, (away, target, weights) = random_problem(3, 0.3)
    start, draw = np.array([0.1, -0.2, 0.05]), np.array([0.3, 0.1, -0.2])
    other, _ = random_problem(4, 0.3)
    direct = 2 / 40 * ((weights * (away @ start - target)) @ away)
    stepped = descend([problem, other], np.stack([start, -start]), np.stack([draw, draw])[:, None], 0.1)
    np.testing.assert_allclose(stepped[0], start - 0.1 * (direct + draw), atol=1e-12)
    np.testing.assert_allclose(stepped[1], -start - 0.1 * (other.gradient(-start) + draw), atol=1e-12)
    far = descend([problem], start[None], 100 * draw[None, None], 1.0)
    assert np.linalg.norm(far) == pytest.approx(1)
