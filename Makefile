# Everything runs in .venv, made from the system's Python; a stamp per set of packages makes the second call quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
INPUTS := pyproject.toml constraints.txt hatch_build.py src/mixtree/_native/_arithmetic.c src/mixtree/_native/_mlp.c

.PHONY: demo test test-extras check coverage hooks simulate lint bench arena attack clean

demo: $(VENV)/.demo
	$(BIN)/mixtree demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# What needs heavy real components: tests marked extras.
test-extras: $(VENV)/.extras $(VENV)-s3/.done
	$(BIN)/python -m pytest tests -m extras

# The quick part, for every commit.
check: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not extras and not simulation"

# How much of the core the tests reach.
coverage: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

# Local hooks: ruff, format, the commit's subject.
hooks: $(VENV)/.dev
	$(BIN)/pre-commit install --hook-type pre-commit --hook-type commit-msg

# Long simulations of known results.
simulate: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal tests -m simulation

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

arena: $(VENV)/.dev
	$(BIN)/mixtree arena

attack: $(VENV)/.dev
	$(BIN)/python tests/attack/run.py --page docs/robustness.md

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

$(VENV)/.pip: $(INPUTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade "pip>=25.1"
	touch $@

$(VENV)/.base: $(VENV)/.pip
	$(PIP) install -q -c constraints.txt -e .
	touch $@

$(VENV)/.demo: $(VENV)/.pip
	$(PIP) install -q -c constraints.txt -e ".[demo]"
	touch $@

$(VENV)/.dev: $(VENV)/.pip
	$(PIP) install -q -c constraints.txt -e ".[all]" --group dev
	touch $@ $(VENV)/.base $(VENV)/.demo

$(VENV)-s3/.done: tests/cluster/s3-constraints.txt
	test -x $(VENV)-s3/bin/python || $(PYTHON) -m venv $(VENV)-s3
	$(VENV)-s3/bin/python -m pip install -q -c tests/cluster/s3-constraints.txt "moto[server]"
	touch $@

$(VENV)/.extras: $(VENV)/.dev
	$(PIP) install -q -c constraints.txt -e ".[all]" --group extras
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-s3 mixtree-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
