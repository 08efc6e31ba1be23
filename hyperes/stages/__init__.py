"""The stages of a run. Each is a recipe and a builder; what it needs it is handed, what it makes is in the store."""

from hyperes.stages.data import chosen_suites, prepare_problems
from hyperes.stages.evolve import check_search, evolve_coefficients
from hyperes.stages.harness import check_tasks, test_tasks
from hyperes.stages.pool import make_directions
from hyperes.stages.search import fixed_choice, make_fitness, search_grid
from hyperes.stages.session import Choice, Direction, Session
from hyperes.stages.test import make_bench, test

__all__ = [
    "Choice",
    "Direction",
    "Session",
    "check_search",
    "check_tasks",
    "chosen_suites",
    "evolve_coefficients",
    "fixed_choice",
    "make_bench",
    "make_directions",
    "make_fitness",
    "prepare_problems",
    "search_grid",
    "test",
    "test_tasks",
]
