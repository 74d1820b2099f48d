# Every target sets up what it needs; a fresh machine needs only Python 3.11+ and make.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m
PIP := $(RUN) pip --disable-pip-version-check

# pyright comes whole in its wheel; this stops it from asking the network for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test torture lint bench docs clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## (.*)/make \1|\2/' | \
		awk -F '|' '{ printf "%-12s %s\n", $$1, $$2 }'

demo: $(VENV)/.installed ## train a small English-German model from nothing and try it (minutes)
	$(RUN) kutta demo

# One thread a worker: two workers fill two cores, and tiny tensors gain nothing from more.
test: $(VENV)/.installed ## run the quick tests; choose some with ARGS="-k beam", slow ones with ARGS="-m slow"
	OMP_NUM_THREADS=1 $(RUN) pytest -n 2 $(ARGS)

# atheris is tried as well where it is installed: its wheels are for some systems only.
torture: $(VENV)/.installed ## kill, fail and flip at random for 20 minutes; ARGS="--seconds 60 --seed 2"
	OMP_NUM_THREADS=1 $(RUN) tests.faults.torture --plants $(ARGS)

lint: $(VENV)/.installed ## check style (ruff) and types (pyright)
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) pyright

bench: $(VENV)/.installed ## measure training speed and memory
	$(VENV)/bin/python benchmarks/train.py

docs: $(VENV)/.installed ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict

clean: ## remove what was built; .venv, data and runs stay
	rm -rf build dist site .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Installing compiles these (hatch_build.py).
NATIVE := $(wildcard src/kutta/native/*.[ch])

# constraints.txt goes with every install: it says what was tested.
$(VENV)/.installed: pyproject.toml constraints.txt hatch_build.py $(NATIVE) | $(VENV)/bin/pip
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

# pip is the last thing that venv writes, so a half-made environment is made again.
$(VENV)/bin/pip:
	@$(PYTHON) -c '' >/dev/null 2>&1 || { \
		echo "There is no working '$(PYTHON)' here: install Python 3.11 or newer," \
			"or say where it is: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Kutta needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) -V 2>&1):" \
			"name a newer one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments: install its venv module" \
			"(Debian, Ubuntu: apt install python3-venv), then run make again." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
