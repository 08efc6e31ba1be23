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
from hyperes.files import says_full


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
    except OSError as error:  # what is written here and not in the store
        if not says_full(error):
            raise
        print(f"hyperes: the disk that holds {folder} is full; finished work is kept: free some space and run the "
              "same command again", file=sys.stderr)  # fmt: skip
        sys.exit(2)
