"""The live model: candidates are written into its weights in place, from a pristine base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hyperes.genome import Candidate
from hyperes.mergers import combine
from hyperes.pool import Factors, Pool, row_of


class Resident:
    """A loaded model whose merged weights can be set to any candidate and back.

    The base of every weight that the pool touches is kept untouched beside the model: a candidate is always written
    as base + gamma * merged, never added to what stands there, so nothing drifts however many are written.
    """

    def __init__(self, model: Any, pool: Pool, seed: int, resample_masks: bool = False) -> None:
        parameters = dict(model.named_parameters())
        shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        pool.check_fits(shapes, str(model.config.name_or_path or type(model).__name__))
        self.model = model
        self._pool = pool
        self._seed = seed
        self._resample = resample_masks
        self._live = {name: parameters[name] for name in pool.weights}
        self._base = {name: parameter.detach().clone() for name, parameter in self._live.items()}

    @torch.no_grad()
    def write(self, candidate: Candidate) -> None:
        """Set the weights to theta_0 + gamma * merged (eq. 21), computed in float32 and rounded once."""
        salt = candidate.key if self._resample else ""
        for name, parameter in self._live.items():
            prepared = self._pool.prepared(name, candidate.operator)
            uniform = self._pool.uniform(name, self._seed, salt) if candidate.dare else None
            merged = combine(candidate, row_of(name, candidate.groups), prepared, uniform)
            # Not in place: .float() of a float32 base is the base itself.
            parameter.copy_(torch.add(self._base[name].float(), merged, alpha=candidate.gamma))

    @torch.no_grad()
    def restore(self) -> None:
        """Set the weights back to the base, bit for bit."""
        for name, parameter in self._live.items():
            parameter.copy_(self._base[name])


class ResidentLora:
    """A loaded model that wears one LoRA adapter after another, each written onto a kept copy of the base."""

    def __init__(self, model: Any, weights: Sequence[str]) -> None:
        parameters = dict(model.named_parameters())
        self._live = {name: parameters[name] for name in weights}
        self._base = {name: parameter.detach().clone() for name, parameter in self._live.items()}

    @torch.no_grad()
    def write(self, adapter: Mapping[str, Factors]) -> None:
        """Set every weight to theta_0 + (alpha/r) B A, computed in float32 and rounded once."""
        for name, parameter in self._live.items():
            delta = adapter[name].to(parameter.device).delta()
            parameter.copy_(self._base[name].float() + delta)
