"""The neighbouring merge operators, each against a slow computation of its definition and on degenerate pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hyperes.genome import Candidate, Operator
from hyperes.mergers import combine, disjoint, merge, prepare, trim, weighted_sum, wudi

STEPS: dict[str, Any] = {"steps": 300, "step_size": 0.03}


@st.composite
def deltas(draw: st.DrawFn) -> Tensor:
    """(N, *shape) float32 with exact zeros, repeated magnitudes and whole directions of zeros among them."""
    count = draw(st.integers(1, 4))
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.integers(-3, 4, size=(count, *shape)) * draw(st.sampled_from([1.0, 1e-5]))
    if draw(st.booleans()):
        values[rng.integers(count)] = 0
    return torch.from_numpy(values).float()


def random_deltas(count: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


# Task arithmetic


@given(deltas(), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_a_weighted_sum_is_one(pool: Tensor, seed: int) -> None:
    weight = np.random.default_rng(seed).normal(size=len(pool))
    expected = sum(w * delta for w, delta in zip(weight, pool.double().numpy(), strict=True))
    np.testing.assert_allclose(weighted_sum(pool, weight).double().numpy(), expected, rtol=0, atol=3e-6 * 12)


def test_task_arithmetic_of_degenerate_pools() -> None:
    one = random_deltas(1, 3, 4)
    assert torch.equal(weighted_sum(one, np.ones(1)), one[0])
    assert torch.equal(weighted_sum(torch.cat([one, one]), np.ones(2)), 2 * one[0])
    assert not weighted_sum(torch.cat([one, -one]), np.ones(2)).any()
    assert torch.equal(weighted_sum(torch.cat([one, 0 * one]), np.ones(2)), one[0])
    half = weighted_sum(one.repeat(3, 1, 1).bfloat16(), np.ones(3))
    assert half.dtype == torch.float32
    assert torch.equal(half, 3 * one[0].bfloat16().float())
    with pytest.raises(ValueError, match="weight must be finite of shape"):
        weighted_sum(one, np.ones(2))
    with pytest.raises(ValueError, match="deltas must be floating"):
        weighted_sum(torch.zeros(0, 3), np.ones(0))


# TIES trimming


def slow_trim(delta: np.ndarray, kept: int) -> np.ndarray:
    order = sorted(range(delta.size), key=lambda j: (-abs(delta.flat[j]), j))
    result = np.zeros_like(delta)
    for j in order[:kept]:
        result.flat[j] = delta.flat[j]
    return result


@given(deltas(), st.floats(0.01, 1))
@settings(max_examples=60, deadline=None)
def test_trimming_keeps_the_largest_of_each_direction(pool: Tensor, density: float) -> None:
    kept = max(1, round(density * pool[0].numel()))
    expected = np.stack([slow_trim(delta, kept) for delta in pool.numpy()])
    np.testing.assert_array_equal(trim(pool, density=density).numpy(), expected)


def test_ties_merging_worked_by_hand() -> None:
    """Density 0.5 keeps two of four entries: (4, -3, 0, 0), (-5, 0, 0, 2), (2, -1, 0, 0); elected: +, -, none, +."""
    pool = torch.tensor([[4.0, -3.0, 1.0, 0.5], [-5.0, 1.0, -1.5, 2.0], [2.0, -1.0, 0.5, 0.25]])
    merged = merge(trim(pool, density=0.5), np.zeros(3), np.ones(3), None, dare=False)
    assert merged.tolist() == [3.0, -2.0, 0.0, 2.0]
    assert trim(pool[:, :1], density=0.2).tolist() == pool[:, :1].tolist()  # at least one entry stays
    for density in (0.0, 1.1):
        with pytest.raises(ValueError, match="density"):
            trim(pool, density=density)


# CABS


def slow_cabs(pool: np.ndarray, keep: int, block: int) -> np.ndarray:
    kept = np.zeros_like(pool)
    taken: set[int] = set()
    for i, delta in enumerate(pool):
        mine: list[int] = []
        for first in range(0, delta.size, block):
            free = [j for j in range(first, min(first + block, delta.size)) if j not in taken and delta.flat[j] != 0]
            mine += sorted(free, key=lambda j: (-abs(delta.flat[j]), j))[:keep]
        for j in mine:
            kept[i].flat[j] = delta.flat[j]
        taken |= set(mine)
    return kept


@given(deltas(), st.integers(1, 9), st.data())
@settings(max_examples=100, deadline=None)
def test_cabs_takes_turns_block_by_block(pool: Tensor, block: int, data: st.DataObject) -> None:
    keep = data.draw(st.integers(1, block))
    kept = disjoint(pool, keep=keep, block=block)
    np.testing.assert_array_equal(kept.numpy(), slow_cabs(pool.numpy(), keep, block))
    assert ((kept != 0).sum(0) <= 1).all()


def test_cabs_worked_by_hand() -> None:
    """2 of 4: the first takes its two largest, the second finds the 9 taken and its 0 not worth taking."""
    pool = torch.tensor([[9.0, -8.0, 1.0, 1.0, 5.0], [9.0, 0.0, 0.0, -2.0, 6.0]])
    kept = disjoint(pool, keep=2, block=4)
    assert kept.tolist() == [[9.0, -8.0, 0.0, 0.0, 5.0], [0.0, 0.0, 0.0, -2.0, 0.0]]
    assert weighted_sum(kept, np.array([1.0, 0.5])).tolist() == [9.0, -8.0, 0.0, -1.0, 5.0]


def test_cabs_of_degenerate_pools() -> None:
    one = random_deltas(1, 6, 8)
    assert torch.equal(disjoint(one, keep=8, block=8), one)
    for twin in (one, -one):  # the second gets the next largest; together they are as many as 4 of 8
        first, second = disjoint(torch.cat([one, twin]), keep=2, block=8)
        assert torch.equal(first, disjoint(one, keep=2, block=8)[0])
        assert torch.equal(first.abs() + second.abs(), disjoint(one, keep=4, block=8)[0].abs())
    zero, after = disjoint(torch.cat([0 * one, one]), keep=2, block=8)
    assert not zero.any()
    assert torch.equal(after, disjoint(one, keep=2, block=8)[0])
    for keep in (0, 9):
        with pytest.raises(ValueError, match="keep"):
            disjoint(one, keep=keep, block=8)


# WUDI


def factors(count: int, rows: int, columns: int, rank: int, scale: float = 1e-5, seed: int = 0) -> list:
    left, right = random_deltas(count, rows, rank, seed=seed), random_deltas(count, rank, columns, seed=seed + 1)
    return [(scale * a, b) for a, b in zip(left, right, strict=True)]


def dense(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    return torch.stack([a.double() @ b.double() for a, b in pairs])


def loss(merged: Tensor, taus: Tensor) -> Tensor:
    """The definition, with a d_out x d_out matrix per direction."""
    return sum(((merged - tau) @ tau.T).square().sum() / tau.square().sum() for tau in taus)


def slow_wudi(taus: Tensor, steps: int, step_size: float) -> Tensor:
    """Autograd in float64 on the definition, in units of the root mean square."""
    taus = taus.double()
    rms = taus.square().mean().sqrt()
    merged = (taus / rms).sum(0).requires_grad_()
    adam = torch.optim.Adam([merged], lr=step_size, eps=1e-4)
    for _ in range(steps):
        adam.zero_grad()
        loss(merged, taus / rms).backward()
        adam.step()
    return merged.detach() * rms


@pytest.mark.parametrize(
    ("count", "rows", "columns", "rank"),
    [(3, 12, 40, 4), (3, 40, 12, 4), (4, 9, 16, 1), (2, 6, 7, 7)],  # few factors, many, of rank one, of full rank
)
def test_wudi_is_adam_on_its_definition(count: int, rows: int, columns: int, rank: int) -> None:
    pairs = factors(count, rows, columns, rank)
    taus = dense(pairs)
    merged = wudi(pairs, **STEPS).double()
    expected = slow_wudi(taus, **STEPS)
    start = taus.sum(0)
    assert loss(merged, taus) < 0.2 * loss(start, taus)
    assert (merged - expected).abs().max() < 0.01 * (expected - start).abs().max()
    as_matrices = [(tau.float(), torch.eye(columns)) for tau in taus]
    assert (wudi(as_matrices, **STEPS).double() - expected).abs().max() < 0.01 * (expected - start).abs().max()


def test_wudi_repeats_itself_and_scales_with_its_directions() -> None:
    pairs = factors(3, 10, 14, 2)
    assert torch.equal(wudi(pairs, **STEPS), wudi(pairs, **STEPS))
    larger = wudi([(a * 1024, b) for a, b in pairs], **STEPS)
    torch.testing.assert_close(larger, 1024 * wudi(pairs, **STEPS), rtol=1e-4, atol=1e-4 * float(larger.abs().max()))


def test_wudi_of_degenerate_pools() -> None:
    (left, right), other = factors(1, 8, 12, 3)[0], factors(1, 8, 12, 3, seed=7)[0]
    alone = wudi([(left, right)], **STEPS)
    torch.testing.assert_close(alone, left @ right, rtol=0, atol=1e-11)  # nothing interferes with a lone direction
    zero = (0 * left, right)
    assert torch.equal(wudi([(left, right), zero, other], **STEPS), wudi([(left, right), other], **STEPS))
    assert not wudi([zero, zero], **STEPS).any()
    size = (left @ right).square().mean().sqrt()
    assert wudi([(left, right), (-left, right)], **STEPS).abs().max() < 0.02 * size
    twice = wudi([(left, right), (left, right)], **STEPS)  # T = τ has no loss at all
    assert loss(twice.double(), dense([(left, right)] * 2)) < 1e-3 * loss(
        2 * (left @ right).double(), dense([(left, right)])
    )
    apart = [(left, torch.cat([right, 0 * right], 1)), (left, torch.cat([0 * right, right], 1))]
    torch.testing.assert_close(wudi(apart, **STEPS), dense(apart).sum(0).float(), rtol=0, atol=1e-11)
    for wrong in ([], [(left, left)], [(left, right), (left[1:], right)]):
        with pytest.raises(ValueError, match="factors must be"):
            wudi(wrong, **STEPS)


# Dispatch


@pytest.mark.parametrize(
    ("operator", "by_hand"),
    [
        (Operator("task_arithmetic"), lambda pool, weight: weighted_sum(pool, weight)),
        (
            Operator("cabs", (("block", 6), ("keep", 2))),
            lambda pool, weight: weighted_sum(disjoint(pool, keep=2, block=6), weight),
        ),
        (
            Operator("dare_ties", (("density", 0.5),)),
            lambda pool, weight: merge(trim(pool, density=0.5), np.zeros(3), weight, None, dare=False),
        ),
        (Operator(), lambda pool, weight: merge(pool, np.zeros(3), weight, None, dare=False)),
    ],
)
def test_a_candidate_is_merged_by_its_operator(operator: Operator, by_hand: Callable[..., Tensor]) -> None:
    pairs = factors(3, 5, 7, 2)
    pool = torch.stack([a @ b for a, b in pairs])
    weight = np.array([1.0, 0.25, 0.5])
    candidate = Candidate(("g", "h"), np.zeros((2, 3)), np.stack([np.ones(3), weight]), 2.0, False, True, operator)
    prepared = prepare(operator, lambda: pool, lambda: pairs)
    assert torch.equal(combine(candidate, 1, prepared, None), by_hand(pool, weight))


def test_wudi_takes_no_coefficients() -> None:
    pairs = factors(3, 5, 7, 2)
    operator = Operator("wudi", tuple(sorted(STEPS.items())))
    candidate = Candidate(("g",), np.zeros((1, 3)), np.full((1, 3), 0.1), 1.0, False, False, operator)
    prepared = prepare(operator, lambda: pytest.fail("WUDI needs no dense deltas"), lambda: pairs)
    assert torch.equal(combine(candidate, 0, prepared, None), wudi(pairs, **STEPS))
    vectors = random_deltas(3, 7)  # of full-parameter directions: norms and biases
    assert torch.equal(prepare(operator, lambda: vectors, None)[0], vectors.mean(0))
    with pytest.raises(ValueError, match="no merge operator slerp"):
        prepare(Operator("slerp"), lambda: prepared, lambda: pairs)
