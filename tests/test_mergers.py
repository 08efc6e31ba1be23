"""hyperes.mergers against a per-entry reference, the identities of the paper's operator, and mergekit."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperes.mergers import dare_ties, merge

FIXTURE = Path(__file__).parent / "fixtures" / "mergekit_dare_ties.json"
EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23}


class Problem(NamedTuple):
    deltas: torch.Tensor
    drop_rate: np.ndarray
    weight: np.ndarray
    uniform: torch.Tensor

    def merge(self, dare: bool = True, ties: bool = True) -> torch.Tensor:
        return merge(*self, dare=dare, ties=ties)

    def survivors(self, dare: bool = True) -> np.ndarray:
        """Δθ̃ in float64, (N, *shape)."""
        deltas = self.deltas.double().numpy()
        if not dare:
            return deltas
        rates = self.drop_rate.reshape(-1, *[1] * (deltas.ndim - 1))
        return np.where(self.uniform.numpy() >= rates, deltas, 0.0)


@st.composite
def problems(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> Problem:
    """Deltas with exact zeros and repeated values among them, any drop rates, some weights zero."""
    count = draw(st.integers(1, 6))
    shape = draw(st.lists(st.integers(1, 5), max_size=3))
    drop_rate = draw(st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0, 1), min_size=count, max_size=count))
    ratios = st.just(0.0) | st.floats(1e-3, 1e3)
    weight = draw(st.lists(ratios, min_size=count, max_size=count).filter(any))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    deltas = rng.normal(scale=draw(st.sampled_from([1e-5, 1.0])), size=(count, *shape))
    if draw(st.booleans()):
        deltas = np.round(deltas * 1e5) / 1e5
    uniform = torch.from_numpy(rng.random(deltas.shape, dtype=np.float32).reshape(deltas.shape))
    return Problem(torch.from_numpy(deltas).to(dtype), np.array(drop_rate), np.array(weight), uniform)


def reference(survivors: np.ndarray, weight: np.ndarray, ties: bool) -> np.ndarray:
    """Eq. 18-20 word for word, one entry at a time."""
    result = np.zeros(survivors.shape[1:])
    for j in np.ndindex(result.shape):
        column = [float(survivor[j]) for survivor in survivors]
        total = sum(w * d for w, d in zip(weight, column, strict=True))
        if not ties:
            result[j] = total / sum(weight)
            continue
        agreeing = [i for i, d in enumerate(column) if d != 0 and np.sign(d) == np.sign(total)]
        share = sum(weight[i] for i in agreeing)
        if share:
            result[j] = sum(weight[i] * column[i] for i in agreeing) / share
    return result


def decided(survivors: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Entries whose election rounding cannot turn."""
    weighted = survivors * weight.reshape(-1, *[1] * (survivors.ndim - 1))
    return np.abs(weighted.sum(0)) > 8 * len(weight) * eps * np.abs(weighted).sum(0)


def assert_close(found: torch.Tensor, expected: np.ndarray, where: np.ndarray, scale: np.ndarray, eps: float) -> None:
    """``scale`` (per entry): the size of the terms that were summed."""
    error = np.abs(found.double().numpy() - expected)
    assert np.all((error <= 40 * eps * scale)[where])


@given(st.sampled_from([torch.float32, torch.float64]).flatmap(problems), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_agrees_with_the_reference(problem: Problem, dare: bool, ties: bool) -> None:
    survivors, eps = problem.survivors(dare), EPS[problem.deltas.dtype]
    merged = problem.merge(dare, ties)
    assert merged.dtype == problem.deltas.dtype
    assert merged.shape == problem.deltas.shape[1:]
    where = decided(survivors, problem.weight, eps) if ties else np.ones(merged.shape, bool)
    assert_close(merged, reference(survivors, problem.weight, ties), where, np.abs(survivors).max(0), eps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ties", [True, False])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype, ties: bool) -> None:
    rng = np.random.default_rng(1)
    problem = Problem(
        torch.from_numpy(rng.normal(size=(9, 200))).to(dtype),
        np.full(9, 0.4),
        rng.random(9) + 0.1,
        torch.from_numpy(rng.random((9, 200), dtype=np.float32)),
    )
    survivors, merged = problem.survivors(), problem.merge(ties=ties)
    assert merged.dtype == torch.float32
    where = decided(survivors, problem.weight, EPS[torch.float32])
    expected = reference(survivors, problem.weight, ties)
    assert_close(merged, expected, where, np.abs(survivors).max(0), EPS[torch.float32])


@given(problems(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_bounds(problem: Problem, dare: bool) -> None:
    """|Δθ̄ⱼ| <= maxᵢ|Δθᵢⱼ| and ‖Δθ̄‖ <= √(Σᵢ‖Δθᵢ‖²)."""
    merged, deltas = problem.merge(dare).numpy(), problem.deltas.numpy()
    slack = 1 + 1e-14
    assert np.all(np.abs(merged) <= np.abs(deltas).max(0) * slack)
    assert np.linalg.norm(merged) <= np.sqrt((deltas**2).sum()) * slack


@given(problems(), st.floats(-50, 50))
@settings(max_examples=40, deadline=None)
def test_only_ratios_of_the_weights_matter(problem: Problem, shift: float) -> None:
    """ω = exp(b): adding a constant to all b multiplies ω by a factor."""
    where = decided(problem.survivors(), problem.weight, EPS[torch.float64])
    scaled = problem._replace(weight=problem.weight * np.exp(shift))
    assert_close(scaled.merge(), problem.merge().numpy(), where, np.abs(problem.deltas.numpy()).max(0), 1e-16)


@given(problems(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_order_of_directions_and_sign(problem: Problem, shuffle: random.Random) -> None:
    where = decided(problem.survivors(), problem.weight, EPS[torch.float64])
    order = shuffle.sample(range(len(problem.weight)), len(problem.weight))
    deltas, drop_rate, weight, uniform = problem
    permuted = Problem(deltas[order], drop_rate[order], weight[order], uniform[order])
    assert_close(permuted.merge(), problem.merge().numpy(), where, np.abs(problem.deltas.numpy()).max(0), 1e-16)
    flipped = problem._replace(deltas=-deltas)
    assert torch.equal(flipped.merge(), -problem.merge())
    assert torch.equal(flipped.merge(ties=False), -problem.merge(ties=False))


@given(problems())
@settings(max_examples=40, deadline=None)
def test_a_dropped_entry_never_agrees(problem: Problem) -> None:
    """A direction with p = 1 might as well not exist; without TIES it still counts in the denominator."""
    grown = Problem(
        torch.cat([problem.deltas, torch.full_like(problem.deltas[:1], 1e6)]),
        np.append(problem.drop_rate, 1.0),
        np.append(problem.weight, problem.weight.max()),
        torch.cat([problem.uniform, problem.uniform[:1]]),
    )
    assert torch.equal(grown.merge(), problem.merge())
    share = problem.weight.sum() / grown.weight.sum()
    torch.testing.assert_close(grown.merge(ties=False), problem.merge(ties=False) * share, rtol=1e-12, atol=0)


@given(problems(), st.booleans())
@settings(max_examples=20, deadline=None)
def test_blocks_leave_no_trace(problem: Problem, ties: bool) -> None:
    whole = problem.merge(ties=ties)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dare_ties, "CPU_BLOCK", 3)
        assert torch.equal(problem.merge(ties=ties), whole)


def test_one_direction_kept_whole_is_the_identity() -> None:
    delta = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(merge(delta, np.zeros(1), np.array([0.3]), torch.rand(1, 3, 4)), delta[0])


def test_counterexample_to_proposition_1() -> None:
    """‖Δθ̄‖ <= maxᵢ‖Δθᵢ‖ does not hold."""
    deltas = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert merge(deltas, np.zeros(2), np.ones(2), None, dare=False).tolist() == [1.0, 1.0]


def test_entries_worked_by_hand() -> None:
    """Columns: an exact tie; all dropped; the heavier side wins; only p = u survives (>=, not >); a lone ω = 0."""
    deltas = torch.tensor([[1.0, 5.0, 2.0, 3.0, 4.0], [-1.0, 6.0, -1.0, -7.0, 4.0], [0.0, 7.0, 3.0, -9.0, 4.0]])
    uniform = torch.tensor([[0.9, 0.1, 0.9, 0.5, 0.1], [0.9, 0.1, 0.9, 0.49, 0.1], [0.9, 0.1, 0.9, 0.49, 0.9]])
    merged = merge(deltas, np.full(3, 0.5), np.array([1.0, 1.0, 0.0]), uniform)
    assert merged.tolist() == [0.0, 0.0, 2.0, 3.0, 0.0]


def test_survivors_are_not_rescaled() -> None:
    deltas, uniform = torch.full((4, 1000), 0.25), torch.rand(4, 1000, generator=torch.Generator().manual_seed(0))
    assert set(merge(deltas, np.full(4, 0.9), np.ones(4), uniform).tolist()) == {0.0, 0.25}
    mean = merge(deltas, np.full(4, 0.9), np.ones(4), uniform, ties=False)
    assert mean.mean().item() == pytest.approx(0.025, abs=0.003)


def test_inputs_are_left_alone() -> None:
    deltas, uniform = torch.randn(3, 8), torch.rand(3, 8)
    copies = deltas.clone(), uniform.clone()
    for dare in (True, False):
        merge(deltas, np.full(3, 0.5), np.ones(3), uniform, dare=dare)
    assert torch.equal(deltas, copies[0])
    assert torch.equal(uniform, copies[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deltas": torch.zeros(0, 3)}, "deltas"),
        ({"deltas": torch.zeros(2, 3, dtype=torch.int64)}, "deltas"),
        ({"drop_rate": np.zeros(3)}, "drop_rate must have shape"),
        ({"drop_rate": np.array([0.5, 1.1])}, "drop_rate must lie"),
        ({"drop_rate": np.array([0.5, np.nan])}, "drop_rate must lie"),
        ({"weight": np.ones((2, 1))}, "weight must have shape"),
        ({"weight": np.zeros(2)}, "weight must be finite"),
        ({"weight": np.array([1, np.nan])}, "weight must be finite"),
        ({"weight": np.array([1, np.inf])}, "weight must be finite"),
        ({"weight": np.array([1, -0.1])}, "weight must be finite"),
        ({"uniform": None}, "uniform"),
        ({"uniform": torch.rand(2, 1)}, "uniform"),  # would broadcast in silence
    ],
)
def test_wrong_arguments_are_refused(change: dict, message: str) -> None:
    good: dict[str, Any] = {
        "deltas": torch.zeros(2, 3),
        "drop_rate": np.zeros(2),
        "weight": np.ones(2),
        "uniform": torch.rand(2, 3),
    }
    merge(**good)
    with pytest.raises(ValueError, match=message):
        merge(**(good | change))


MERGEKIT = json.loads(FIXTURE.read_text())


@pytest.mark.parametrize("case", MERGEKIT["cases"], ids=lambda case: f"{case['method']}-{len(case['weight'])}")
def test_agrees_with_mergekit(case: dict) -> None:
    """θ₀ + scale·N·Δθ̄ is mergekit's own result, as fixtures/record_mergekit.py recorded it."""
    dtype = getattr(torch, case["dtype"])
    base, deltas, expected = (torch.tensor(case[name], dtype=dtype) for name in ("base", "deltas", "merged"))
    uniform = torch.tensor(case["uniform"], dtype=torch.float32)
    problem = Problem(deltas, np.array(case["drop_rate"]), np.array(case["weight"]), uniform)
    ties, eps, gamma = case["method"] == "dare_ties", EPS[dtype], case["scale"] * len(deltas)
    found = base + gamma * problem.merge(ties=ties)
    survivors = problem.survivors()
    where = decided(survivors, problem.weight, eps) | (survivors == 0).all(0)
    assert where.mean() > 0.9
    scale = np.abs(base.numpy()) + gamma * np.abs(survivors).max(0)
    assert_close(found, expected.double().numpy(), where, scale, eps)
    assert not torch.equal(found, base)
