"""What made a run: the commits and libraries of its own work and of the work it found in the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hyperes.files import read_json
from hyperes.runs import Run
from hyperes.store import SHORT

if TYPE_CHECKING:
    from hyperes.tables.build import Row


def commits(run: Run) -> list[str]:
    """Of the run and of all that it rests on, shortened; a released package knows none."""
    return sorted({_short(made.get("commit")) for made in _makers(run)})


def lines(rows: Sequence[Row]) -> list[str]:
    """Key, seed and commits of every run behind a table, and where library versions differ among its parts."""
    runs = {run.result["key"]: (row.label, run) for row in rows for run in row.runs}
    if not runs:
        return []
    known = {key: ", ".join(commits(run)) for key, (_, run) in runs.items()}
    alike = len(set(known.values())) == 1
    named = [
        f"{label}, seed {run.seed}: `{key[:SHORT]}`" + ("" if alike else f" by {known[key]}")
        for key, (label, run) in runs.items()
    ]
    made = f"Made by commit {next(iter(known.values()))}" if alike else "Made by different commits"
    found = [f"{made}. Keys: {'; '.join(named)}."]
    versions: dict[str, set[str]] = {}
    for _, run in runs.values():
        for made_with in _makers(run):
            for library, version in made_with["versions"].items():
                versions.setdefault(library, set()).add(version)
    mixed = [f"{library} {', '.join(sorted(several))}" for library, several in versions.items() if len(several) > 1]
    if mixed:
        found.append(
            f"Parts were made with different versions: {'; '.join(mixed)}. Another store makes all of it anew."
        )
    return found


def _makers(run: Run) -> Iterator[dict[str, Any]]:
    """What recorded a commit and versions: the result, and the recipe of every artifact that the store still has."""
    yield run.result
    parts = run.result["artifacts"]
    places = [("direction", key) for key in parts["directions"]]
    places += [(stage, parts["search"]) for stage in ("grid", "evolve") if parts["search"]]
    places += [("evaluation", key) for suites in parts["tests"].values() for key in suites.values()]
    for stage, key in places:
        path = run.store / stage / key[:SHORT] / "recipe.json"
        if path.exists():
            yield read_json(path)


def _short(commit: str | None) -> str:
    name, _, dirty = (commit or "unknown").partition("-")
    return (name[:12] if commit else name) + ("-dirty" if dirty else "")
