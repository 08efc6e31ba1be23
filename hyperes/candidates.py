"""From the merger's settings and a point of a search to the candidate: the one place where settings become a merge."""

from __future__ import annotations

import numpy as np

from hyperes.config import MergerConfig
from hyperes.genome import Candidate, Genome, Operator


def operator_of(merger: MergerConfig, count: int, ties: bool) -> Operator:
    """The operator with its own arguments, for ``count`` directions; trimming is a part of TIES."""
    match merger.operator:
        case "dare_ties" if ties and merger.density < 1:
            return Operator("dare_ties", (("density", merger.density),))
        case "cabs":
            assert merger.cabs is not None
            keep = merger.cabs.keep or merger.cabs.block // count
            return Operator("cabs", (("block", merger.cabs.block), ("keep", keep)))
        case "wudi":
            assert merger.wudi is not None
            return Operator("wudi", (("step_size", merger.wudi.step_size), ("steps", merger.wudi.steps)))
    return Operator(merger.operator)


def magnitude(merger: MergerConfig, scale: float, count: int) -> tuple[float, float]:
    """(γ, ω shared by every direction): γ = scale·N (eq. 21), γ = λ, γ = 1, or γ = 1 and every ωᵢ = λ (CABS)."""
    return {
        "scale_times_count": (scale * count, 1.0),
        "scale": (scale, 1.0),
        "one": (1.0, 1.0),
        "weights": (1.0, scale),
    }[merger.magnitude]


def shared(merger: MergerConfig, genome: Genome, scale: float, drop_rate: float, dare: bool, ties: bool) -> Candidate:
    """One scale and drop rate for every group and direction: a point of the grid, or the merger's own."""
    gamma, weight = magnitude(merger, scale, genome.directions)
    operator = operator_of(merger, genome.directions, ties)
    return genome.shared(drop_rate, gamma=gamma, weight=weight, dare=dare, ties=ties, operator=operator)


def decoded(merger: MergerConfig, genome: Genome, z: np.ndarray, scale: float, drop_rate: float) -> Candidate:
    """The candidate of a search vector, with the merger's own flags; unsearched groups keep the shared drop rate."""
    return genome.decode(
        z,
        gamma=magnitude(merger, scale, genome.directions)[0],
        dare=merger.dare,
        ties=merger.ties,
        shared_drop_rate=drop_rate,
        operator=operator_of(merger, genome.directions, merger.ties),
    )
