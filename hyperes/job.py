"""One job, alone or of a sweep: what Hydra calls with a composed configuration.

A module of its own and not ``__main__``, so that a job pickled for SLURM is found again on its node.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from hyperes import status
from hyperes.compose import to_config
from hyperes.errors import UserError


def job(composed: DictConfig) -> None:
    """Run the pipeline; a mistake of the user's ends in one clear line and exit status 2."""
    from hyperes.pipeline import run

    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        with status.recorded(folder):
            run(to_config(composed), folder)
    except UserError as error:
        print(f"hyperes: {error}", file=sys.stderr)
        sys.exit(2)
