"""What every stage works with, and what the stages hand each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperes.executors import Executor
from hyperes.genome import Candidate
from hyperes.recipe import Recipe
from hyperes.store import Artifact, Store
from hyperes.tracking import Tracker


@dataclass(frozen=True)
class Session:
    """What every stage works with, none of which may change a result."""

    store: Store
    executor: Executor
    tracker: Tracker


@dataclass(frozen=True)
class Direction:
    """One direction of the pool: its identity, its PEFT folder, its training history."""

    key: str
    folder: Path
    steps: list[dict[str, Any]]
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The candidate that a search settled on."""

    candidate: Candidate
    drop_rate: float  # the shared one it started from
    scale: float
    fitness: float | None  # accuracy on the validation problems that the search saw; None where nothing was searched
    evaluations: int  # candidates evaluated to get here
    seconds: dict[str, float]  # by stage: what its work took, summed over workers
    artifact: str | None
    z: list[float] | None = None
    held_out: float | None = None  # accuracy on the validation problems kept from the search, where some were


def models(choice: Choice | None) -> dict[str, Candidate | None]:
    """What is tested, by name: the base (None) and, where there is one, the chosen candidate."""
    return {"base": None} if choice is None else {"base": None, "merged": choice.candidate}


def published(store: Store, recipes: Mapping[tuple[str, str], Recipe]) -> dict[str, dict[str, Artifact]]:
    """The artifacts of recipes by (model, suite or task), as {model: {suite or task: artifact}}; all must be there."""
    made: dict[str, dict[str, Artifact]] = {}
    for (model, name), recipe in recipes.items():
        artifact = store.find(recipe)
        assert artifact is not None
        made.setdefault(model, {})[name] = artifact
    return made


def on_wait(message: str) -> None:
    print(message, flush=True)
