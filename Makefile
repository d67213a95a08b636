# Two commands do all the set-up on a fresh machine: `make quickstart` and `make test`.
# `make test-all` runs the slow tier too: launched processes, kills, benchmarks, full products.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: quickstart test test-all bench-gpu mutants lint docs notebooks release clean

# The environment is made once, and again when what it is made from changes.
$(BIN)/.installed: setup.cfg pyproject.toml .ci/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint .ci/constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint .ci/constraints.txt --editable ".[dev,demo,docs]"
	touch $@

# FAO (joint) on the built-in encoder and text: a table of scores before and after, and a model in runs/fao_joint_builtin.
quickstart: $(BIN)/.installed
	$(BIN)/hf-xalign demo --processes 1 $(ARGS)

test: $(BIN)/.installed
	$(BIN)/pytest -q -n 2 --dist worksteal $(ARGS)

test-all: $(BIN)/.installed
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not gpu" $(ARGS)

# Steps of every trainer against the bare passes of its encoder, on a GPU, and the tests that need one.
bench-gpu: $(BIN)/.installed
	$(BIN)/python benchmarks/trainer_steps.py --device cuda --bf16 --pairs 64 --compile no yes $(ARGS)
	$(BIN)/pytest -q -m gpu

# Change the losses, the searches, the collators and the symmetrisation one operator at a time: do the fast tests notice?
mutants: $(BIN)/.installed
	$(BIN)/mutmut run
	$(BIN)/mutmut results

lint: $(BIN)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pylint hf_xalign trainers recipes/parts model_cards

# The documentation, into build/site, without a network. (The variable hides an advertisement of the theme.)
docs: $(BIN)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Run the notebooks again and keep their outputs: some ten minutes.
notebooks: $(BIN)/.installed
	$(BIN)/python tests/support/notebooks.py examples/*.ipynb

# Sdist and wheel, each installed into a fresh environment and used there.
release: $(BIN)/.installed
	.ci/release $(BIN)/python

clean:
	rm -rf .venv build dist mutants *.egg-info
