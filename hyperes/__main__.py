"""``python -m hyperes``: compose the configuration, then run the pipeline once."""

from __future__ import annotations

import sys
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from hyperes.compose import precheck, register, to_config
from hyperes.config import CONF_DIR
from hyperes.errors import UserError


@hydra.main(config_path=str(CONF_DIR), config_name="config", version_base="1.3")
def job(composed: DictConfig) -> None:
    """One job, alone or of a sweep."""
    from hyperes.pipeline import run

    try:
        run(to_config(composed), Path(HydraConfig.get().runtime.output_dir))
    except UserError as error:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise  # Hydra reports it and goes on with the sweep's other jobs
        print(f"hyperes: {error}", file=sys.stderr)
        sys.exit(2)


def main() -> int:
    arguments = get_args_parser().parse_known_args()[0]
    looking = arguments.cfg or arguments.help or arguments.hydra_help or arguments.info
    register()
    try:
        if not (looking or arguments.multirun or arguments.shell_completion):
            precheck(arguments.overrides, arguments.config_dir)
        job()
    except UserError as error:
        print(f"hyperes: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hyperes: interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
