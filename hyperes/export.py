"""Write the model of a finished run as a folder: ``python -m hyperes.export RUN FOLDER``.

RUN is a run's folder or its result.json. FOLDER becomes an ordinary transformers model with its tokenizer, the merge
written into its weights: vLLM, lm-eval or anything else reads it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from hyperes import candidates
from hyperes.backbone import locate, quiet
from hyperes.compose import to_config
from hyperes.config import AdapterDirections, Config
from hyperes.errors import UserError, command
from hyperes.evaluation.live import Bench, Live
from hyperes.files import sync_folder
from hyperes.genome import Candidate
from hyperes.pool import genome_of
from hyperes.runs import Run, open_run
from hyperes.store import SHORT


def bench_of(run: Run) -> tuple[Bench, Candidate | None]:
    """The bench of a finished run and the candidate it chose (None: the base).

    Raises UserError where the backbone or a direction is no longer what the run used.
    """
    result = run.result
    config = to_config(OmegaConf.create(result["config"]))
    backbone = locate(config.backbone)
    if backbone.fingerprint != result["backbone"]["fingerprint"]:
        raise UserError(f"{backbone.folder}: not the backbone of this run (its files have changed)")
    keys = result["artifacts"]["directions"]
    folders = _direction_folders(config, keys, run.store)
    pairs = tuple((key, str(folder)) for key, folder in zip(keys, folders, strict=True))
    engine = config.engine
    bench = Bench(backbone, pairs, config.merger.mask, config.seed, engine.max_new_tokens, engine.batch_size)
    return bench, _candidate(config, result["choice"], folders)


def export(run: Run, folder: Path) -> None:
    """Write the chosen model and its tokenizer; raises UserError where ``folder`` is in the way."""
    if folder.exists():
        raise UserError(f"{folder}: is there already; choose another folder")
    bench, candidate = bench_of(run)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from None
    live = Live(bench)
    live.set(candidate)
    with quiet():
        live.model.save_pretrained(partial)
        live.tokenizer.save_pretrained(partial)
    sync_folder(partial)
    os.replace(partial, folder)


def _direction_folders(config: Config, keys: list[str], store: Path) -> list[Path]:
    if isinstance(config.directions, AdapterDirections):
        folders = [Path(path) for path in config.directions.paths]
    else:
        folders = [store / "direction" / key[:SHORT] / "adapter" for key in keys]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: this direction of the run is not there (another --store?)")
    return folders


def _candidate(config: Config, choice: dict[str, Any] | None, folders: list[Path]) -> Candidate | None:
    if choice is None:
        return None
    point = choice["scale"], choice["drop_rate"]
    if choice["z"] is None:
        candidate = candidates.shared(config.merger, genome_of(folders), *point, choice["dare"], choice["ties"])
    else:
        genome = genome_of(folders, config.optimizer.space)
        candidate = candidates.decoded(config.merger, genome, np.array(choice["z"]), *point)
    if candidate.key != choice["candidate"]:
        raise UserError("the directions of this run no longer give the candidate that it tested")
    return candidate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run's folder, or its result.json")
    parser.add_argument("folder", type=Path, help="where to write the model; must not exist")
    parser.add_argument("--store", type=Path, help="the run's store, where it is not the one its config names")
    arguments = parser.parse_args()

    def work() -> None:
        export(open_run(arguments.run, arguments.store), arguments.folder)
        print(f"model: {arguments.folder}")

    return command(work)


if __name__ == "__main__":
    sys.exit(main())
