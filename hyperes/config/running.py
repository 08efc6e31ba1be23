"""What does the work, the final test, and tracking. MISSING are the backbone's numbers, which conf/ fills in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

_SRUN_CPUS = '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK'


@dataclass
class EngineConfig:
    """What turns prompts into completions during search and test."""

    kind: str = "hf"
    max_new_tokens: int = MISSING
    batch_size: int = MISSING


@dataclass
class SlurmConfig:
    """What a sweep's job asks of SLURM (executor=slurm). Null: the cluster's own default."""

    partition: str | None = None
    gpus: int | None = None
    cpus: int | None = None
    memory_gb: int | None = None
    minutes: int = 1440  # time limit of one job
    requeues: int = 100  # how often a job that met its time limit is queued again; it goes on where it was
    parallel: int = 256  # jobs at a time
    parameters: dict[str, Any] = field(default_factory=dict)  # further sbatch options, e.g. {account: x, qos: y}
    # shell lines before the job; since SLURM 22.05 srun does not take the job's number of CPUs by itself
    setup: list[str] = field(default_factory=lambda: [_SRUN_CPUS])


@dataclass
class ExecutorConfig:
    """Who does the work. Never part of a result's identity."""

    name: str = "local"  # local | inline | slurm
    workers: int = 1  # processes at a time
    threads: int | None = None  # CPU threads per worker; null: cores divided by workers
    slurm: SlurmConfig = field(default_factory=SlurmConfig)


@dataclass
class LmEvalConfig:
    """Arguments of lm-eval for `test.tasks`; the names are lm-eval's."""

    apply_chat_template: bool = True  # our backbones are chat models
    fewshot_as_multiturn: bool = True
    num_fewshot: int | None = None  # null: the task's own
    limit: int | None = None  # first so many documents
    system_instruction: str | None = None
    gen_kwargs: dict[str, Any] = field(default_factory=dict)  # over the task's own, e.g. {max_gen_toks: 1024}
    metadata: dict[str, Any] = field(default_factory=dict)  # for tasks that take some; our suites: {folder: DIR}


@dataclass
class TestConfig:
    """The final evaluation."""

    suites: list[str] | None = None  # null: all suites of the data set
    limit: int | None = None  # first so many problems of each suite
    samples: int = MISSING  # completions per problem: Mean@k
    temperature: float = MISSING
    top_p: float = MISSING
    tasks: list[str] = field(default_factory=list)  # lm-eval tasks beside the suites, by name
    lm_eval: LmEvalConfig = field(default_factory=LmEvalConfig)
    allow_code_execution: bool = False  # run Python that the model wrote: code suites need it (docs/sandbox.md)


@dataclass
class TrackingConfig:
    """Weights & Biases."""

    mode: str = "offline"  # offline | online | disabled
    project: str = "hyperes"
    entity: str | None = None
    folder: str = "."  # W&B writes into FOLDER/wandb
