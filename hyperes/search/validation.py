"""Impossible combinations of merger and optimizer, each refused with one clear line. A part of compose.validate."""

from __future__ import annotations

from hyperes.config import Config, EvolutionConfig
from hyperes.errors import UserError


def validate_merger(config: Config) -> None:
    """Refuse a merge operator whose settings contradict each other; raises UserError."""
    merger, count = config.merger, config.directions.count
    if not 0 < merger.drop_rate < 1:
        raise UserError(f"merger.drop_rate={merger.drop_rate}: must lie strictly between 0 and 1")
    if not 0 < merger.density <= 1:
        raise UserError(f"merger.density={merger.density}: must lie in (0, 1]; 1 trims nothing")
    if merger.density < 1 and not merger.ties:
        raise UserError(f"merger.density={merger.density}: trimming belongs to TIES; set merger.ties=true or density=1")
    if merger.operator != "dare_ties" and (merger.dare or merger.ties):
        raise UserError(f"merger.operator={merger.operator} neither drops nor elects; set dare and ties to false")
    for operator in ("cabs", "wudi"):
        if (getattr(merger, operator) is not None) != (merger.operator == operator):
            raise UserError(f"merger.{operator} goes with merger.operator={operator} alone; choose merger={operator}")
    if (merger.magnitude == "weights") != (merger.operator == "cabs"):
        raise UserError(f"merger.magnitude={merger.magnitude} does not go with merger.operator={merger.operator}")
    if merger.cabs:
        keep, block = merger.cabs.keep or merger.cabs.block // max(1, count), merger.cabs.block
        if not 1 <= keep <= block:
            raise UserError(
                f"merger.cabs.block={block}: {count} directions share it and each keeps {keep}; want 1 to {block}"
            )


def validate_optimizer(config: Config) -> None:
    """Refuse a search that the merger has nothing for, or that contradicts itself; raises UserError."""
    optimizer, merger = config.optimizer, config.merger
    if optimizer.evolution:
        if not (merger.dare or merger.ties):
            raise UserError(
                f"merger={merger.name} has no coefficients to evolve; use optimizer=none, or grid where it has a scale"
            )
        if not optimizer.grid and optimizer.name == "grid_cma":
            raise UserError("optimizer.grid is null: grid_cma starts from the grid's best point; use optimizer=cma")
        _validate_evolution(optimizer.evolution)
    elif optimizer.space != "per_block":
        raise UserError(
            f"optimizer.space={optimizer.space}: optimizer={optimizer.name} searches no coefficients of single groups; "
            "drop the space, or use an optimizer that evolves them"
        )
    if optimizer.grid:
        if merger.magnitude == "one":
            raise UserError(f"merger={merger.name} has no scale for a grid to choose; use optimizer=none")
        _validate_grid(config)


def _validate_evolution(evolution: EvolutionConfig) -> None:
    key, algorithm = "optimizer.evolution", evolution.algorithm
    if (evolution.generations is None) == (evolution.evaluations is None):
        raise UserError(
            f"{key}.generations={evolution.generations} and evaluations={evolution.evaluations}: the budget is one of "
            "them; set the other to null"
        )
    if not 0 < evolution.revalidation.share < 1:
        raise UserError(f"{key}.revalidation.share={evolution.revalidation.share}: must lie strictly between 0 and 1")
    if algorithm == "cma":
        if evolution.arguments:
            raise UserError(f"{key}.arguments are for nevergrad's algorithms; cma has sigma, population and diagonal")
        if evolution.population is not None and evolution.population < 4:
            raise UserError(f"{key}.population={evolution.population}: must be at least 4")
        if evolution.evaluations is not None and evolution.evaluations < (evolution.population or 4):
            raise UserError(f"{key}.evaluations={evolution.evaluations}: not one generation of CMA-ES; give more")
        return
    if evolution.answer == "mean":
        raise UserError(
            f"{key}.answer=mean: {algorithm} has no distribution whose mean could be the answer, only cma has; "
            "choose best or best_revalidated"
        )
    if evolution.diagonal:
        raise UserError(f"{key}.diagonal is for cma; {algorithm} has no covariance")
    from hyperes.search.named import configure  # a second, and nothing on the way to CMA-ES

    configure(algorithm, evolution.arguments)


def _validate_grid(config: Config) -> None:
    grid, merger = config.optimizer.grid, config.merger
    assert grid is not None
    if not grid.scales or not all(scale > 0 for scale in grid.scales):
        raise UserError(f"optimizer.grid.scales={grid.scales}: give at least one, each above 0")
    if merger.operator != "dare_ties":
        return
    if not grid.drop_rates or not all(0 < p < 1 for p in grid.drop_rates):
        raise UserError(
            f"optimizer.grid.drop_rates={grid.drop_rates}: give at least one, each strictly between 0 and 1"
        )
    if merger.dare not in grid.dare or merger.ties not in grid.ties:
        raise UserError(
            f"optimizer.grid has no point with the flags of merger={merger.name} "
            f"(dare={merger.dare}, ties={merger.ties}); add them to optimizer.grid.dare and .ties"
        )
