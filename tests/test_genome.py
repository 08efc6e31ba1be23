"""hyperes.genome: the paper's dimensions, the coding z ↔ (p, ω), and candidate keys."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hyperes.genome import DROP_RATE_MARGIN, Candidate, Genome, Operator

GENOME = Genome(("layers.0.attention", "layers.0.mlp"), 3, unsearched=("other",))
FLAGS: dict[str, Any] = {"gamma": 2.7 * 3, "dare": True, "ties": True}
LOGITS = arrays(np.float64, (GENOME.dimension,), elements=st.floats(-1e4, 1e4))


@pytest.mark.parametrize(
    ("groups", "directions", "dimension", "population"),
    [(48, 10, 960, 24), (56, 10, 1120, 25), (56, 7, 784, 23), (8, 8, 128, 18)],
)
def test_dimensions_of_the_paper(groups: int, directions: int, dimension: int, population: int) -> None:
    genome = Genome(tuple(f"group {i}" for i in range(groups)), directions, unsearched=("other",))
    assert (genome.dimension, genome.population) == (dimension, population)
    assert genome.start(0.5).shape == (dimension,)


def test_layout_of_z() -> None:
    """z is (a of group 0, b of group 0, a of group 1, b of group 1); the unsearched group comes last."""
    z = np.array([0, 1, -1, 0, 0, np.log(2), 2, -2, 0, 5, 5, 5], dtype=np.float64)
    candidate = GENOME.decode(z, **FLAGS, shared_drop_rate=0.7)
    assert candidate.groups == ("layers.0.attention", "layers.0.mlp", "other")
    p = [[0.5, 0.7310585786300049, 0.2689414213699951], [0.8807970779778823, 0.11920292202211755, 0.5], [0.7, 0.7, 0.7]]
    np.testing.assert_allclose(candidate.drop_rate, p, rtol=1e-15)
    np.testing.assert_allclose(candidate.weight, [[0.5, 0.5, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], rtol=1e-15)
    assert (candidate.gamma, candidate.dare, candidate.ties) == (FLAGS["gamma"], True, True)


@given(LOGITS)
@settings(max_examples=100, deadline=None)
def test_any_finite_z_decodes(z: np.ndarray) -> None:
    """No overflow (numpy's warnings are errors here), p = σ(a), ω = exp(b) up to a factor per group."""
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        candidate = GENOME.decode(z, **FLAGS, shared_drop_rate=0.5)
    a, b = z.reshape(2, 2, 3).transpose(1, 0, 2)
    p, weight = candidate.drop_rate[:2], candidate.weight[:2]
    assert np.all((weight.max(axis=1) == 1) & (weight.min(axis=1) >= 0))
    moderate = np.abs(a) < 30
    np.testing.assert_allclose(p[moderate], 1 / (1 + np.exp(-a[moderate])), rtol=1e-14)
    gap = b - b.max(axis=1, keepdims=True)
    near = gap > -600
    np.testing.assert_allclose(np.log(weight[near]), gap[near], rtol=1e-12, atol=1e-12)


@given(LOGITS, st.integers(-1000, 1000))
@settings(max_examples=50, deadline=None)
def test_a_constant_added_to_b_of_one_group_changes_nothing(z: np.ndarray, shift: int) -> None:
    z = np.round(z)  # so that adding the shift is exact
    moved = z.copy()
    moved[3:6] += shift
    decode = {**FLAGS, "shared_drop_rate": 0.5}
    assert GENOME.decode(moved, **decode).key == GENOME.decode(z, **decode).key


@pytest.mark.parametrize("p", [0.3, 0.5, 0.7, 0.9, 1e-5])
def test_the_start_decodes_to_the_grid_point(p: float) -> None:
    decoded, shared = GENOME.decode(GENOME.start(p), **FLAGS, shared_drop_rate=p), GENOME.shared(p, **FLAGS)
    np.testing.assert_allclose(decoded.drop_rate, shared.drop_rate, rtol=1e-14)
    np.testing.assert_array_equal(decoded.weight, shared.weight)
    assert decoded.groups == shared.groups


def test_a_start_at_the_ends_is_moved_inside() -> None:
    for p, moved in ((0.0, DROP_RATE_MARGIN), (1.0, 1 - DROP_RATE_MARGIN)):
        candidate = GENOME.decode(GENOME.start(p), **FLAGS, shared_drop_rate=p)
        np.testing.assert_allclose(candidate.drop_rate[:2], moved, rtol=1e-9)
        assert np.all(candidate.drop_rate[2] == p)


def make(**change: Any) -> Candidate:
    fields = {"groups": ("g", "h"), "drop_rate": np.full((2, 3), 0.5), "weight": np.ones((2, 3)), **FLAGS}
    return Candidate(**(fields | change))


def test_every_field_enters_the_key_to_the_last_bit() -> None:
    last_bit = np.full((2, 3), 0.5)
    last_bit[1, 2] = np.nextafter(0.5, 1)
    changed = [
        make(groups=("h", "g")),
        make(drop_rate=last_bit),
        make(weight=last_bit * 2),
        make(drop_rate=np.ones((2, 3)), weight=np.full((2, 3), 0.5)),
        make(gamma=float(np.nextafter(FLAGS["gamma"], 9))),
        make(dare=False),
        make(ties=False),
        make(operator=Operator("cabs", (("block", 4), ("keep", 2)))),
        make(operator=Operator("cabs", (("block", 4), ("keep", 1)))),
    ]
    keys = {candidate.key for candidate in [make(), *changed]}
    assert len(keys) == len(changed) + 1
    assert make().key == make(weight=np.ones((2, 3), dtype=np.int64)).key
    assert (
        make().key == "ce998a632dbd71d3ebe8f8ff9a0ad104ea90f03c745a713124150eb66e269628"
    )  # stored fitness depends on it


def test_a_candidate_cannot_be_changed() -> None:
    rates = np.full((2, 3), 0.5)
    candidate = make(drop_rate=rates)
    rates[0, 0] = 0.9
    assert candidate.drop_rate[0, 0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        candidate.drop_rate[0, 0] = 0.9
    with pytest.raises(dataclasses.FrozenInstanceError):
        candidate.gamma = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": ("g", "g")}, "distinct"),
        ({"groups": ("g",)}, "drop_rate must have shape"),
        ({"drop_rate": np.full(2, 0.5)}, "drop_rate must have shape"),
        ({"drop_rate": np.full((2, 3), 1.5)}, "drop_rate must lie"),
        ({"drop_rate": np.full((2, 3), np.nan)}, "drop_rate must lie"),
        ({"weight": np.ones((2, 2))}, "weight must have"),
        ({"weight": np.full((2, 3), -1.0)}, "weight must be"),
        ({"weight": np.full((2, 3), np.inf)}, "weight must be"),
        ({"weight": np.array([[1.0, 1, 1], [0, 0, 0]])}, "weight must be"),
        ({"gamma": float("nan")}, "gamma"),
    ],
)
def test_wrong_candidates_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**change)


def test_wrong_genomes_and_vectors_are_refused() -> None:
    for arguments in (((), 3), (("g",), 0)):
        with pytest.raises(ValueError, match="nothing to search"):
            Genome(*arguments)
    with pytest.raises(ValueError, match="distinct"):
        Genome(("g",), 1, unsearched=("g",))
    for z in (np.zeros(11), np.zeros((2, 6)), np.full(12, np.nan), np.full(12, np.inf)):
        with pytest.raises(ValueError, match="z must be finite"):
            GENOME.decode(z, **FLAGS, shared_drop_rate=0.5)
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="drop_rate must lie"):
            GENOME.start(p)
        with pytest.raises(ValueError, match="drop_rate must lie"):
            GENOME.shared(p, **FLAGS)
