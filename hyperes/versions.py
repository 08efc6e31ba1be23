"""Versions of the stages: raise one by hand when a change of the code changes what its stage makes.

They enter the keys, so whatever was made by an older meaning is made anew. Library versions do not: they are recorded.
"""

PROBLEMS = 2  # loading, splitting, ordering
GRPO = 1  # training a direction
CMA = 1  # CMA-ES on LoRA parameters
RANDOM = 1  # drawing a direction
EVALUATION = 3  # merging, generating and grading together: whatever turns a candidate into scores
SEARCH = 2  # grid and evolution
RESULT = 3  # what result.json holds

ALL = {
    "problems": PROBLEMS,
    "grpo": GRPO,
    "cma": CMA,
    "random": RANDOM,
    "evaluation": EVALUATION,
    "search": SEARCH,
    "result": RESULT,
}
