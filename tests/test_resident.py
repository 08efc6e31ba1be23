"""Merging in place: exact restore, agreement with a dense computation, adapters that do not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import composed
from safetensors.torch import load_file, save_file

from hyperes import candidates, counter
from hyperes.backbone import load_model
from hyperes.errors import UserError
from hyperes.genome import Candidate, Genome
from hyperes.mergers import disjoint, merge, trim, wudi
from hyperes.pool import DENSE, SPACES, genome_of, group_of, layer_groups, read_adapter, read_pool
from hyperes.resident import Resident

CPU = torch.device("cpu")
GROUPS = tuple(f"layers.{layer}.{part}" for layer in range(4) for part in ("attention", "mlp"))


def state(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def candidate(genome: Genome, seed: int, dare: bool = True, ties: bool = True) -> Candidate:
    z = np.random.default_rng(seed).normal(size=genome.dimension)
    return genome.decode(z, gamma=3.0, dare=dare, ties=ties, shared_drop_rate=0.5)


@pytest.fixture
def resident(backbone: Any, make_adapter: Callable[[int], Path]) -> Resident:
    pool = read_pool([("a", make_adapter(1)), ("b", make_adapter(2)), ("c", make_adapter(3))], CPU)
    return Resident(load_model(backbone), pool, seed=5)


def test_pool_has_one_attention_and_one_mlp_group_per_layer(resident: Resident) -> None:
    assert layer_groups(resident._pool.weights) == (GROUPS, ())
    assert layer_groups(["model.embed_tokens.weight", "model.layers.10.mlp.up_proj.weight"])[1] == ("other",)


@pytest.mark.parametrize(
    ("model", "layers", "directions", "dimension", "population"),
    [
        ("Qwen2.5-0.5B-Instruct", 24, 10, 960, 24),
        ("Qwen2.5-1.5B-Instruct", 28, 10, 1120, 25),
        ("DeepSeek-R1-Distill-Qwen-1.5B", 28, 7, 784, 23),
    ],
)
def test_the_papers_dimensions_come_out_of_the_published_architectures(
    model: str, layers: int, directions: int, dimension: int, population: int
) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = (896, 4864, 14, 2) if layers == 24 else (1536, 8960, 12, 2)
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    config = Qwen2Config(num_hidden_layers=layers, vocab_size=8, **dict(zip(names, sizes, strict=True)))
    with torch.device("meta"):
        weights = [name for name, _ in Qwen2ForCausalLM(config).named_parameters()]

    def genome(space: str) -> Genome:
        searched, unsearched = layer_groups(weights, space)
        assert unsearched == ("other",)  # embeddings, norms and the biases of q, k and v
        return Genome(searched, directions, unsearched)

    assert (genome("per_block").dimension, genome("per_block").population) == (dimension, population), model
    assert genome("per_layer").dimension == dimension // 2
    assert genome("per_module").dimension == layers * 7 * 2 * directions
    assert genome("global").dimension == 2 * directions
    assert genome("per_block").groups[:3] == ("layers.0.attention", "layers.0.mlp", "layers.1.attention")
    assert genome("per_layer").groups == tuple(f"layers.{layer}" for layer in range(layers))


@pytest.mark.parametrize("space", SPACES)
def test_every_weight_finds_the_coefficients_of_its_group(resident: Resident, space: str) -> None:
    """A candidate that is uniform within groups is the same model in every finer space."""
    weights = resident._pool.weights
    coarse = Genome(layer_groups(weights, space)[0], 3)
    fine = Genome(layer_groups(weights, "per_module")[0], 3)
    z = np.random.default_rng(3).normal(size=(len(coarse.groups), 6))
    group = {group_of(name, "per_module"): group_of(name, space) for name in weights}
    spread = np.stack([z[coarse.groups.index(group[name])] for name in fine.groups])
    flags: dict[str, Any] = {"gamma": 3.0, "dare": True, "ties": True, "shared_drop_rate": 0.5}
    resident.write(coarse.decode(z.reshape(-1), **flags))
    first = state(resident.model)
    resident.write(fine.decode(spread.reshape(-1), **flags))
    assert all(torch.equal(first[name], tensor) for name, tensor in state(resident.model).items())


@pytest.mark.parametrize("merger", ["task_arithmetic", "ties_trimmed", "cabs", "wudi", "average"])
def test_every_merger_is_written_as_it_is_defined(
    resident: Resident, backbone: Any, make_adapter: Callable[[int], Path], merger: str
) -> None:
    """From the YAML to the weights; PEFT's own files give the deltas."""
    config = composed(f"merger={merger}", "optimizer=none", "merger.scale=0.75").merger
    chosen = candidates.shared(config, Genome(GROUPS, 3), config.scale, 0.0, config.dare, config.ties)
    name = "model.layers.2.mlp.up_proj.weight"
    base = state(load_model(backbone))[name]
    resident.write(chosen)
    update = state(resident.model)[name] - base
    pairs = [read_adapter(make_adapter(seed))[name].pair() for seed in (1, 2, 3)]
    pool = torch.stack([left @ right for left, right in pairs])
    expected = {
        "task_arithmetic": lambda: 0.75 * pool.sum(0),
        "ties_trimmed": lambda: 0.75 * 3 * merge(trim(pool, density=0.2), np.zeros(3), np.ones(3), None, dare=False),
        "cabs": lambda: 0.75 * disjoint(pool, keep=256 // 3, block=256).sum(0),
        "wudi": lambda: wudi(pairs, steps=300, step_size=0.03),
        "average": lambda: pool.mean(0),
    }[merger]()
    torch.testing.assert_close(update, expected, rtol=1e-4, atol=1e-6)
    if merger == "wudi":  # solved once
        kept = resident._pool.prepared(name, chosen.operator)
        resident.write(chosen)
        assert resident._pool.prepared(name, chosen.operator) is kept


def test_base_weights_survive_any_number_of_candidates_bit_for_bit(resident: Resident, backbone: Any) -> None:
    loaded = state(load_model(backbone))
    genome = Genome(GROUPS, 3)
    for seed in range(12):
        resident.write(candidate(genome, seed, dare=seed % 2 == 0, ties=seed % 3 == 0))
    assert any(not torch.equal(loaded[name], tensor) for name, tensor in state(resident.model).items())
    resident.restore()
    for name, tensor in state(resident.model).items():
        assert torch.equal(loaded[name], tensor), name


def test_a_candidate_is_the_same_whatever_stood_there_before(resident: Resident) -> None:
    genome = Genome(GROUPS, 3)
    resident.write(candidate(genome, 0))
    first = state(resident.model)
    resident.write(candidate(genome, 1))
    resident.write(candidate(genome, 0))
    assert all(torch.equal(first[name], tensor) for name, tensor in state(resident.model).items())


def test_written_weights_are_the_papers_equations(
    resident: Resident, backbone: Any, make_adapter: Callable[[int], Path]
) -> None:
    """Eq. 16-21 entry by entry in float64 numpy, from PEFT's own files."""
    base = state(load_model(backbone))
    genome = Genome(GROUPS, 3)
    chosen = candidate(genome, 7)
    resident.write(chosen)
    live = state(resident.model)
    files = [load_file(make_adapter(seed) / "adapter_model.safetensors") for seed in (1, 2, 3)]
    for name in ("model.layers.0.self_attn.k_proj.weight", "model.layers.3.mlp.down_proj.weight"):
        row = chosen.groups.index(group_of(name))
        pairs = [(f[f"base_model.model.{name[:-7]}.lora_A.weight"], f[f"base_model.model.{name[:-7]}.lora_B.weight"])
                 for f in files]  # fmt: skip
        deltas = np.stack([2.0 * (b.double() @ a.double()).numpy() for a, b in pairs])
        keys = [counter.key("mask", 5, key, name, "") for key in "abc"]
        field = np.stack([counter.uniform(key, deltas.shape[1:]).numpy() for key in keys])
        kept = np.where(field >= chosen.drop_rate[row][:, None, None].astype(np.float32), deltas, 0.0)
        weighted = chosen.weight[row][:, None, None] * kept
        elected = np.sign(weighted.sum(0))
        agree = (np.sign(kept) == elected) & (kept != 0)
        share = (chosen.weight[row][:, None, None] * agree).sum(0)
        merged = np.divide((weighted * agree).sum(0), share, out=np.zeros_like(elected), where=share > 0)
        expected = base[name].double().numpy() + 3.0 * merged
        decided = np.abs(weighted.sum(0)) > 8 * 3 * np.finfo(np.float32).eps * np.abs(weighted).sum(0)
        decided |= (kept != 0).sum(0) == 0
        assert decided.mean() > 0.99
        np.testing.assert_allclose(live[name].double().numpy()[decided], expected[decided], rtol=0, atol=1e-6)


def test_one_undropped_direction_is_pefts_own_merge(backbone: Any, make_adapter: Callable[[int], Path]) -> None:
    """N = 1, p -> 0, gamma = 1 is theta_0 + delta (method identity), as PEFT merges it."""
    from peft import PeftModel

    expected = state(PeftModel.from_pretrained(load_model(backbone), str(make_adapter(1))).merge_and_unload())
    resident = Resident(load_model(backbone), read_pool([("a", make_adapter(1))], CPU), seed=0)
    genome = Genome(GROUPS, 1)
    resident.write(genome.shared(0.0, gamma=1.0, dare=True, ties=True))
    for name, tensor in state(resident.model).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)


def test_resampled_masks_differ_between_candidates_and_fixed_ones_do_not(
    backbone: Any, make_adapter: Callable[[int], Path]
) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    pool = read_pool([("a", make_adapter(1))], CPU)
    genome = Genome(GROUPS, 1)
    lower, higher = (genome.shared(p, gamma=1.0, dare=True, ties=True) for p in (0.5, 0.6))

    def dropped(resample: bool) -> list[torch.Tensor]:
        resident = Resident(load_model(backbone), pool, seed=0, resample_masks=resample)
        base, masks = state(resident.model)[name], []
        for each in (lower, higher):
            resident.write(each)
            masks.append(state(resident.model)[name] == base)
        return masks

    fixed_low, fixed_high = dropped(resample=False)
    assert (fixed_low <= fixed_high).all()  # one field: what is dropped at 0.5 is dropped at 0.6
    loose_low, loose_high = dropped(resample=True)
    assert not (loose_low <= loose_high).all()


def test_a_dense_delta_gives_back_the_trained_model(tmp_path: Path, backbone: Any) -> None:
    """Full-parameter training changes embeddings, norms and biases too: they travel as the unsearched group."""
    from hyperes.directions.grpo import _difference

    trained = load_model(backbone)
    torch.manual_seed(0)
    for parameter in trained.parameters():
        parameter += 0.01 * torch.randn_like(parameter)
    save_file(_difference(trained, backbone), tmp_path / DENSE)
    genome = genome_of([tmp_path])
    assert (genome.groups, genome.unsearched) == (GROUPS, ("other",))
    model = load_model(backbone)
    resident = Resident(model, read_pool([("full", tmp_path)], CPU), seed=0)
    resident.write(genome.shared(0.0, gamma=1.0, dare=False, ties=False))
    for name, tensor in state(trained).items():
        torch.testing.assert_close(state(model)[name], tensor, rtol=0, atol=1e-6)
    resident.write(genome.shared(0.5, gamma=1.0, dare=True, ties=True))  # masks of vectors too
    changed = state(model)["model.norm.weight"] != state(load_model(backbone))["model.norm.weight"]
    assert 0 < changed.float().mean() < 1
    resident.restore()
    assert all((tensor == state(model)[name]).all() for name, tensor in state(load_model(backbone)).items())


def damaged(source: Path, target: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    shutil.copytree(source, target)
    tensors = load_file(target / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, target / "adapter_model.safetensors")
    return target


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_directions_are_refused(tmp_path: Path, make_adapter: Callable[[int], Path], value: float) -> None:
    def poison(tensors: dict[str, torch.Tensor]) -> None:
        next(iter(tensors.values()))[0, 0] = value

    folder = damaged(make_adapter(1), tmp_path / "bad", poison)
    with pytest.raises(UserError, match="NaN or infinity"):
        read_adapter(folder)


def test_an_adapter_of_another_base_is_refused(
    tmp_path: Path, backbone: Any, make_adapter: Callable[[int], Path]
) -> None:
    def widen(tensors: dict[str, torch.Tensor]) -> None:
        name = next(name for name in tensors if "lora_A" in name)
        tensors[name] = torch.zeros(tensors[name].shape[0], 999)

    folder = damaged(make_adapter(1), tmp_path / "wide", widen)
    with pytest.raises(UserError, match="another base"):
        Resident(load_model(backbone), read_pool([("wide", folder)], CPU), seed=0)


def test_an_adapter_that_is_no_plain_lora_is_refused(tmp_path: Path, make_adapter: Callable[[int], Path]) -> None:
    folder = tmp_path / "dora"
    shutil.copytree(make_adapter(1), folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
    with pytest.raises(UserError, match=r"adapter_config\.json: only plain LoRA"):
        read_adapter(folder)
