"""The search vector z and the merge coefficients it encodes (paper eq. 16)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hyperes.files import digest

# The start logit of p = 0 or 1 would be infinite: p is kept this far from both, |logit| <= 13.8.
DROP_RATE_MARGIN = 1e-6


@dataclass(frozen=True)
class Operator:
    """A merge operator: its name in ``hyperes.mergers`` and the arguments of its own, in order of their names.

    ``dare_ties`` is the paper's operator (eq. 18-20), whose flags stand in the candidate; its one argument is the
    ``density`` that TIES trims to. The others (``task_arithmetic``, ``cabs``, ``wudi``) use neither flags nor masks.
    """

    name: str = "dare_ties"
    parameters: tuple[tuple[str, float], ...] = ()


DARE_TIES = Operator()


@dataclass(frozen=True, eq=False)
class Candidate:
    """All that distinguishes one merged model from another, given the base and the direction pool.

    groups     (L,) names of the layer groups, in the order of the rows below.
    drop_rate  (L, N) float64 in [0, 1]: p. Idle without ``dare``.
    weight     (L, N) float64, finite, >= 0, no row all zero: ω, of which dare_ties uses each row only up to a factor;
               λᵢ for cabs.
    gamma      the global magnitude γ (eq. 21).
    operator   what merges; ``dare`` and ``ties`` are flags of dare_ties.

    The arrays are copied and made read-only. Raises ValueError for other shapes or values.
    """

    groups: tuple[str, ...]
    drop_rate: np.ndarray
    weight: np.ndarray
    gamma: float
    dare: bool
    ties: bool
    operator: Operator = DARE_TIES

    def __post_init__(self) -> None:
        _check_names(self.groups)
        for name in ("drop_rate", "weight"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.drop_rate.ndim != 2 or self.drop_rate.shape[0] != len(self.groups) or self.drop_rate.shape[1] == 0:
            raise ValueError(f"drop_rate must have shape ({len(self.groups)}, N), not {self.drop_rate.shape}")
        if self.weight.shape != self.drop_rate.shape:
            raise ValueError(f"weight must have drop_rate's shape {self.drop_rate.shape}, not {self.weight.shape}")
        if not np.all((self.drop_rate >= 0) & (self.drop_rate <= 1)):  # NaN compares false and is refused too
            raise ValueError("drop_rate must lie in [0, 1]")
        if not np.all(np.isfinite(self.weight) & (self.weight >= 0)) or not np.all(self.weight.any(axis=1)):
            raise ValueError("weight must be finite and not negative, with no row all zero")
        if not math.isfinite(self.gamma):
            raise ValueError(f"gamma must be finite, not {self.gamma}")

    @cached_property
    def key(self) -> str:
        """Hex SHA-256 of every field, floats to the last bit."""
        return digest(
            {
                "groups": self.groups,
                "drop_rate": [[value.hex() for value in row] for row in self.drop_rate.tolist()],
                "weight": [[value.hex() for value in row] for row in self.weight.tolist()],
                "gamma": float(self.gamma).hex(),
                "dare": bool(self.dare),
                "ties": bool(self.ties),
                "operator": [self.operator.name, [list(pair) for pair in self.operator.parameters]],
            }
        )


@dataclass(frozen=True)
class Genome:
    """The search space: L searched layer groups × N directions, and groups that are merged but not searched.

    z is float64 of shape (L·2N,): for each searched group in order, N drop-rate logits a and then N mixing-weight
    logits b. Candidates list the searched groups first, then the unsearched. Raises ValueError for no group, no
    direction or a name used twice.
    """

    groups: tuple[str, ...]
    directions: int
    unsearched: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_names(self.groups + self.unsearched)
        if not self.groups or self.directions < 1:
            raise ValueError(f"nothing to search: {len(self.groups)} groups, {self.directions} directions")

    @property
    def dimension(self) -> int:
        """L·2N, the length of z."""
        return len(self.groups) * 2 * self.directions

    @property
    def population(self) -> int:
        """CMA-ES candidates per generation (eq. 27)."""
        return default_population(self.dimension)

    def decode(
        self,
        z: np.ndarray,
        *,
        gamma: float,
        dare: bool,
        ties: bool,
        shared_drop_rate: float,
        operator: Operator = DARE_TIES,
    ) -> Candidate:
        """The candidate of z: p = σ(a), ω = exp(b) (eq. 16); unsearched groups get p = shared_drop_rate, ω = 1.

        Each group's ω is divided by its largest, which changes no merge and cannot overflow. Raises ValueError when z
        has another shape or is not finite.
        """
        z = np.asarray(z, dtype=np.float64)
        if z.shape != (self.dimension,) or not np.all(np.isfinite(z)):
            raise ValueError(f"z must be finite of shape ({self.dimension},), not shape {z.shape}")
        logits = z.reshape(len(self.groups), 2, self.directions)
        a, b = logits[:, 0], logits[:, 1]
        fixed = (len(self.unsearched), self.directions)
        drop_rate = np.concatenate([_sigmoid(a), np.full(fixed, shared_drop_rate)])
        weight = np.concatenate([np.exp(b - b.max(axis=1, keepdims=True)), np.ones(fixed)])
        return Candidate(self.groups + self.unsearched, drop_rate, weight, gamma, dare, ties, operator)

    def shared(
        self,
        drop_rate: float,
        *,
        gamma: float,
        dare: bool,
        ties: bool,
        weight: float = 1.0,
        operator: Operator = DARE_TIES,
    ) -> Candidate:
        """A point of the grid (eq. 22): one drop rate and one ω, 1 in the paper, for every group and direction."""
        groups = self.groups + self.unsearched
        shape = (len(groups), self.directions)
        return Candidate(groups, np.full(shape, drop_rate), np.full(shape, weight), gamma, dare, ties, operator)

    def start(self, drop_rate: float) -> np.ndarray:
        """The z that decodes to ``shared(drop_rate)``: a = logit(p), b = 0.

        p is first brought into [1e-6, 1 - 1e-6] (``DROP_RATE_MARGIN``). Raises ValueError when it is not in [0, 1].
        """
        if not 0 <= drop_rate <= 1:
            raise ValueError(f"drop_rate must lie in [0, 1], not {drop_rate}")
        p = min(max(drop_rate, DROP_RATE_MARGIN), 1 - DROP_RATE_MARGIN)
        z = np.zeros((len(self.groups), 2, self.directions))
        z[:, 0] = math.log(p) - math.log1p(-p)
        return z.reshape(-1)


def default_population(dimension: int) -> int:
    """G = 4 + ⌊3 ln d⌋ (eq. 27)."""
    return 4 + math.floor(3 * math.log(dimension))


def _sigmoid(a: np.ndarray) -> np.ndarray:
    """1/(1 + exp(-a)) without overflow, and accurate near 0."""
    small = np.exp(-np.abs(a))
    return np.where(a >= 0, 1, small) / (1 + small)


def _check_names(groups: tuple[str, ...]) -> None:
    if len(set(groups)) != len(groups):
        raise ValueError(f"layer groups must have distinct names: {groups}")
