"""A candidate on problems: written into the live model, completed, graded. Fitness and test share this path."""

from hyperes.evaluation.live import Bench
from hyperes.evaluation.records import RECORDS, Record, read_records, write_records
from hyperes.evaluation.run import Evaluation, Task, evaluate, fitness

__all__ = ["RECORDS", "Bench", "Evaluation", "Record", "Task", "evaluate", "fitness", "read_records", "write_records"]
