"""Versions of the stages: raise one by hand when a change of the code changes what its stage makes.

They enter the keys, so whatever was made by an older meaning is made anew. Library versions do not: they are recorded.
"""

PROBLEMS = 1  # loading, splitting, ordering
GRPO = 1  # training a direction
EVALUATION = 1  # merging, generating and grading together: whatever turns a candidate into scores
SEARCH = 1  # grid and CMA-ES
RESULT = 1  # what result.json holds

ALL = {"problems": PROBLEMS, "grpo": GRPO, "evaluation": EVALUATION, "search": SEARCH, "result": RESULT}
