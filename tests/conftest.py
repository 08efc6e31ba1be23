"""Shared pieces: the embedded backbone, small adapters for it, the command line as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("HYPERES_DATA") or ROOT.parent / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark files at {DATA}: set HYPERES_DATA")
# Tests run beside each other's child processes: one thread each, and no hub.
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", WANDB_SILENT="true")


def cli(folder: Path, *overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m hyperes OVERRIDES`` in ``folder``."""
    return subprocess.run(
        [sys.executable, "-m", "hyperes", *overrides],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def composed(*overrides: str) -> Any:
    """The Config that these overrides compose."""
    from hydra import compose, initialize_config_dir

    from hyperes.compose import register, to_config
    from hyperes.config import CONF_DIR

    register()
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return to_config(compose("config", overrides=list(overrides)))


@pytest.fixture(scope="session")
def backbone() -> Any:
    from hyperes.backbone import locate
    from hyperes.config import BackboneConfig

    return locate(BackboneConfig(name="bundled", path="bundled", device="cpu"))


@pytest.fixture(scope="session")
def make_adapter(tmp_path_factory: pytest.TempPathFactory, backbone: Any) -> Callable[[int], Path]:
    """A PEFT adapter folder of random rank-4 deltas, by seed, saved by PEFT itself."""
    import torch
    from peft import LoraConfig, get_peft_model

    from hyperes.backbone import load_model

    made: dict[int, Path] = {}

    def make(seed: int) -> Path:
        if seed not in made:
            torch.manual_seed(seed)
            targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
            lora = LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM")
            model = get_peft_model(load_model(backbone), lora)
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    torch.nn.init.normal_(parameter, std=0.02)
            made[seed] = tmp_path_factory.mktemp(f"adapter-{seed}")
            model.save_pretrained(made[seed])
        return made[seed]

    return make
