"""The table of contents: one run, stage by stage.

    config -> problems -> directions -> grid -> evolve -> test -> result

Every stage (stages/) builds what the store does not have yet, so a killed run continues and a finished one is only
printed. Every method, baseline and ablation takes this path: Base has no directions, GRPO+LoRA has one, w/o CMA-ES
stops after the grid.
"""

from __future__ import annotations

from pathlib import Path

from hyperes.backbone import locate
from hyperes.compose import as_plain
from hyperes.config import Config
from hyperes.datasets import sources
from hyperes.files import read_json, write_json
from hyperes.result import assemble, result_recipe, show
from hyperes.store import Store


def run(config: Config, folder: Path) -> Path:
    """Run one configuration; returns the path of ``result.json`` in the run folder.

    Raises UserError for whatever the user can mend.
    """
    store = Store(Path(config.store).expanduser())
    backbone = locate(config.backbone)
    config.dataset = sources.locate(config.dataset, config.test.suites)
    recipe = result_recipe(config, backbone)

    finished = store.find(recipe)
    if finished is None:
        # Imported here: a finished run is printed without loading torch.
        from hyperes import stages
        from hyperes.executors import Executor
        from hyperes.pool import genome_of
        from hyperes.stages import Session
        from hyperes.tracking import Tracker

        stages.check_tasks(config)
        stages.check_search(config, backbone)
        with Executor(config.executor) as executor, Tracker(config, recipe.key, as_plain(config)) as tracker:
            session = Session(store, executor, tracker)

            problems, problems_folder = stages.prepare_problems(session, config)
            suites = stages.chosen_suites(config, problems)
            directions = stages.make_directions(session, config, backbone, problems.train)
            bench = stages.make_bench(config, backbone, directions)

            choice = None
            if directions:
                folders = [direction.folder for direction in directions]
                genome = genome_of(folders)
                fitness, held_out = stages.make_fitness(session, config, bench, problems_folder, problems.validation)
                choice = stages.fixed_choice(config, genome)
                if config.optimizer.grid:
                    choice = stages.search_grid(session, config, genome, fitness)
                if config.optimizer.evolution:
                    space = genome_of(folders, config.optimizer.space)
                    choice = stages.evolve_coefficients(session, config, space, fitness, held_out, choice)

            records = stages.test(session, config, bench, problems_folder, suites, choice)

            tasks = stages.test_tasks(session, config, bench, choice)
            result = assemble(config, recipe, backbone, directions, choice, records, tasks)
            tracker.summary(result["summary"])
            finished = store.build(recipe, lambda out: write_json(out / "result.json", result))

    result = read_json(finished.path / "result.json")
    path = folder / "result.json"
    write_json(path, result)
    show(result, path)
    return path
