"""Directions made elsewhere: PEFT adapter folders, identified by their content."""

from __future__ import annotations

from pathlib import Path

from hyperes.errors import UserError
from hyperes.files import digest, file_digest

FILES = ("adapter_config.json", "adapter_model.safetensors")


def key(folder: Path) -> str:
    """SHA-256 of an adapter's two files; raises UserError where one is missing."""
    for name in FILES:
        if not (folder / name).is_file():
            raise UserError(f"directions.paths: {folder} has no {name}; give PEFT LoRA folders")
    return digest({name: file_digest(folder / name) for name in FILES})
