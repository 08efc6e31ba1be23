"""``python -m hyperes``: compose the configuration, then run the pipeline once, or every job of a sweep."""

from __future__ import annotations

import shlex
import signal
import sys

import hydra
from hydra._internal.utils import get_args_parser

from hyperes.compose import precheck, register
from hyperes.config import CONF_DIR
from hyperes.errors import UserError
from hyperes.job import job


def main() -> int:
    arguments, unknown = get_args_parser().parse_known_args()
    looking = arguments.cfg or arguments.help or arguments.hydra_help or arguments.info or arguments.shell_completion
    register()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # preemption ends as cleanly as Ctrl-C
    try:
        if not looking:
            from hyperes import sweep

            if unknown:  # a sweep would run other jobs than were asked for
                raise UserError(f"not understood: {shlex.join(unknown)}; flags such as -m come before every key=value")
            if planned := sweep.plan(arguments.overrides, arguments.config_dir, arguments.multirun):
                return sweep.run(planned)
            precheck(arguments.overrides, arguments.config_dir)
        hydra.main(config_path=str(CONF_DIR), config_name="config", version_base="1.3")(job)()
    except UserError as error:
        print(f"hyperes: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        for again in (signal.SIGINT, signal.SIGTERM):
            signal.signal(again, signal.SIG_IGN)  # a second one would only tear the clean end apart
        print("hyperes: interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
