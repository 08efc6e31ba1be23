"""The grid warm start (eq. 22): every group shares one drop rate, every mixing weight is 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hyperes.errors import UserError


@dataclass(frozen=True)
class GridPoint:
    """One global configuration: γ = ``scale``·N, p = ``drop_rate`` for every group and direction, ω = 1."""

    scale: float
    drop_rate: float  # 0.0 where DARE is off: nothing is dropped
    dare: bool
    ties: bool


def points(
    scales: Sequence[float], drop_rates: Sequence[float], dare_flags: Sequence[bool], ties_flags: Sequence[bool]
) -> list[GridPoint]:
    """The distinct points of the grid, in a fixed order.

    The loops run, outermost first, over ``ties_flags``, ``dare_flags``, ``scales``, ``drop_rates``, each in the order
    given. With DARE off the drop rate is idle, so each (scale, ties) is one point with drop rate 0. The paper's 21
    scales × 4 drop rates × both flags are 210 points. A repeated value adds no point.

    Raises UserError for an empty axis, a scale that is not finite and positive, or a drop rate outside [0, 1).
    """
    axes = {"scales": scales, "drop_rates": drop_rates, "dare": dare_flags, "ties": ties_flags}
    for name, values in axes.items():
        if not values:
            raise UserError(f"optimizer.grid.{name}: the list is empty; give at least one value")
    for scale in scales:
        if not (math.isfinite(scale) and scale > 0):
            raise UserError(f"optimizer.grid.scales: {scale} is not a finite positive number")
    for drop_rate in drop_rates:
        if not 0 <= drop_rate < 1:
            raise UserError(f"optimizer.grid.drop_rates: {drop_rate} is outside [0, 1); 1 would drop every entry")
    # a dict keeps the first occurrence of equal points, in order
    return list(
        dict.fromkeys(
            GridPoint(float(scale), float(drop_rate), bool(dare), bool(ties))
            for ties in ties_flags
            for dare in dare_flags
            for scale in scales
            for drop_rate in (drop_rates if dare else (0.0,))
        )
    )


def choose(points: Sequence[GridPoint], fitness: Sequence[float]) -> int:
    """Index of the highest fitness; ties go to the smaller scale, then the larger drop rate, then the first.

    Raises ValueError for no points, a length mismatch, or a fitness that is not finite.
    """
    _require_finite(points, fitness)
    return max(range(len(points)), key=lambda i: (fitness[i], -points[i].scale, points[i].drop_rate, -i))


def choose_start(points: Sequence[GridPoint], fitness: Sequence[float], dare: bool, ties: bool) -> int:
    """Index of the best point among those with the merger's own flags: where CMA-ES starts.

    CMA-ES does not search the flags, so a winner with other flags is no start for it. Indices are those of the whole
    grid. With DARE off the point's drop rate is the idle 0, whose logit is −∞: such a merger has no use for it.

    Raises ValueError as ``choose``, and UserError when the grid has no point with these flags.
    """
    _require_finite(points, fitness)
    own = [i for i, point in enumerate(points) if (point.dare, point.ties) == (dare, ties)]
    if not own:
        raise UserError(
            f"optimizer.grid: no point has the merger's flags (dare={dare}, ties={ties}), so CMA-ES has no start; "
            "add them to optimizer.grid.dare and optimizer.grid.ties"
        )
    return own[choose([points[i] for i in own], [fitness[i] for i in own])]


def edge_warnings(points: Sequence[GridPoint], winner: int) -> list[str]:
    """One line per axis on whose edge the winner lies: the optimum may lie outside, so which way to widen.

    Only axes of three or more values have an inside; on shorter ones every value is an edge and nothing is said.
    A winner without DARE has no drop rate.
    """
    best = points[winner]
    axes = [("scale", "scales", best.scale, {point.scale for point in points})]
    if best.dare:
        axes.append(("drop rate", "drop_rates", best.drop_rate, {point.drop_rate for point in points if point.dare}))
    warnings = []
    for name, key, value, values in axes:
        if len(values) < 3 or min(values) < value < max(values):
            continue
        edge, side = ("lower", "below") if value == min(values) else ("upper", "above")
        warnings.append(
            f"the best {name} {value:g} is the {edge} edge of the grid {min(values):g} … {max(values):g}: "
            f"add {key} {side} {value:g}"
        )
    return warnings


def _require_finite(points: Sequence[GridPoint], fitness: Sequence[float]) -> None:
    if not points or len(points) != len(fitness):
        raise ValueError(f"{len(points)} grid points, {len(fitness)} fitness values: need as many, at least one")
    for point, value in zip(points, fitness, strict=True):
        if not math.isfinite(value):
            raise ValueError(f"fitness {value} of {point} is not finite")
