"""Impossible settings of the direction sources, each refused with one clear line. A part of compose.validate."""

from __future__ import annotations

import math

from hyperes.config import AdapterDirections, CmaDirections, Config, GrpoDirections, RandomDirections
from hyperes.errors import UserError


def validate_directions(config: Config) -> None:
    """Refuse a source whose settings contradict each other or the optimizer; raises UserError.

    Settles what follows from the rest: how many adapters there are, and that a stated norm needs no pool.
    """
    directions, optimizer = config.directions, config.optimizer
    if directions.source == "none":
        if directions.count:
            raise UserError(f"directions.count={directions.count}: directions=none has none; drop one of the two")
        if optimizer.grid or optimizer.evolution:
            raise UserError(f"optimizer={optimizer.name}: nothing to search without directions; use optimizer=none")
    elif isinstance(directions, AdapterDirections):
        if not directions.paths:
            raise UserError("directions.paths is empty: give the adapter folders, directions.paths=[DIR1,DIR2]")
        if directions.count not in (0, len(directions.paths)):
            raise UserError(
                f"directions.count={directions.count}: directions.paths lists {len(directions.paths)} folders"
            )
        directions.count = len(directions.paths)
    elif directions.count < 1:
        raise UserError(
            f"directions.count={directions.count}: {directions.source} needs at least 1 (or directions=none)"
        )
    if isinstance(directions, GrpoDirections):
        _validate_grpo("directions", directions)
    if isinstance(directions, CmaDirections):
        _validate_cma(directions)
    if isinstance(directions, RandomDirections):
        _validate_random(directions)


def _validate_grpo(key: str, directions: GrpoDirections) -> None:
    if directions.group_size < 2:
        raise UserError(f"{key}.group_size={directions.group_size}: group-standardised rewards need at least 2")
    _validate_partition(key, directions.partition, directions.count)
    completions = directions.prompts_per_step * directions.group_size
    if completions % directions.completions_per_pass:
        raise UserError(
            f"{key}.completions_per_pass={directions.completions_per_pass}: must divide "
            f"prompts_per_step x group_size = {completions}"
        )
    chunk, unit = (
        directions.completions_per_generation,
        math.lcm(directions.completions_per_pass, directions.group_size),
    )
    if completions % chunk or chunk % unit:
        raise UserError(
            f"{key}.completions_per_generation={chunk}: must be a multiple of completions_per_pass="
            f"{directions.completions_per_pass} and of group_size={directions.group_size}, and divide "
            f"prompts_per_step x group_size = {completions}"
        )


def _validate_partition(key: str, partition: str, count: int) -> None:
    if partition == "all" and count != 1:
        raise UserError(
            f"{key}.partition=all with {key}.count={count}: "
            f"one direction on all the data; set {key}.count=1 or another partition"
        )


def _validate_cma(directions: CmaDirections) -> None:
    _validate_partition("directions", directions.partition, directions.count)
    if directions.population is not None and directions.population < 4:
        raise UserError(f"directions.population={directions.population}: must be at least 4")


def _validate_random(directions: RandomDirections) -> None:
    if isinstance(directions.norm, str):
        if directions.norm != "match_grpo":
            raise UserError(f"directions.norm={directions.norm}: give a number above 0, or match_grpo")
        if directions.grpo is None or directions.grpo.lora is None:
            raise UserError("directions.norm=match_grpo: directions.grpo with its lora says which pool to match")
        _validate_grpo("directions.grpo", directions.grpo)
    else:
        directions.norm, directions.grpo = float(directions.norm), None  # the pool is not read: it is part of no key
