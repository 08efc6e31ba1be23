"""Separable CMA-ES: what an independent implementation does, in as much memory as is said, resumed to the bit."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperes.errors import UserError
from hyperes.search.separable import VECTORS, Separable

CASES = json.loads((Path(__file__).parent / "fixtures" / "separable.json").read_text())


def run(evolution: Separable, generations: int) -> list[float]:
    """Step sizes on the way down the recorded function."""
    scale = (1.0 + np.arange(evolution.mean.size) % 7) ** 2
    sigmas = []
    for _ in range(generations):
        vectors = [evolution.vector(index) for index in range(evolution.population)]
        evolution.tell([-float((scale * (x - 1) ** 2).sum()) for x in vectors])
        sigmas.append(evolution.sigma)
    return sigmas


def fresh(case: dict[str, Any]) -> Separable:
    start = np.zeros(case["dimension"])
    return Separable(start, sigma=case["sigma"], population=case["population"], seed=case["seed"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"d{case['dimension']}")
def test_it_is_the_separable_cma_es_of_the_cmaes_package(case: dict[str, Any]) -> None:
    evolution = fresh(case)
    np.testing.assert_allclose(run(evolution, case["generations"]), case["sigmas"], rtol=1e-8)
    np.testing.assert_allclose(evolution.mean, case["mean"], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(evolution._variance, case["variance"], rtol=1e-6)


def test_a_saved_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    straight, stopped = fresh(CASES[1]), fresh(CASES[1])
    run(straight, 9)
    run(stopped, 4)
    stopped.save(tmp_path / "state.npz")
    continued = fresh(CASES[1])
    continued.load(tmp_path / "state.npz")
    assert (continued.vector(3) == stopped.vector(3)).all()
    run(continued, 5)
    assert continued.sigma == straight.sigma
    assert (continued.mean == straight.mean).all()
    assert (continued.vector(0) == straight.vector(0)).all()
    with pytest.raises(UserError, match=r"state\.npz: not the state of this search"):
        fresh(CASES[0]).load(tmp_path / "state.npz")


def test_ties_go_to_the_earlier_and_bad_fitness_is_refused() -> None:
    tied, ranked = fresh(CASES[0]), fresh(CASES[0])
    tied.tell([0.0] * 8)
    ranked.tell([float(-index) for index in range(8)])
    assert (tied.mean == ranked.mean).all()
    for fitness in ([0.0] * 7, [0.0] * 7 + [float("nan")]):
        with pytest.raises(ValueError, match="8 finite fitness values"):
            tied.tell(fitness)


def test_its_memory_is_the_estimate() -> None:
    dimension = 300_000
    tracemalloc.start()
    evolution = Separable(np.zeros(dimension), sigma=1.0, population=6, seed=0)
    for _ in range(2):
        evolution.tell([float(evolution.vector(index)[0]) for index in range(6)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (VECTORS - 1) * 8 * dimension < peak < (VECTORS + 0.1) * 8 * dimension
