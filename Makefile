# Every target sets up .venv by itself; nothing but python3 (with venv), cc and make is assumed.
# PYTHON=python3.12 chooses another interpreter for a new .venv, ARGS=... goes to pytest.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
TESTS := $(BIN)/python tests/goes.py
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --editable

# The tests start hundreds of processes; without byte code each of them would compile whet anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo quick test test-all faults lint format docs bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.run-time ## tune a C kernel on this machine and show where the time went
	@$(BIN)/whet demo

quick: $(VENV)/.development ## run what takes a moment: for the edit loop, within a minute
	@$(TESTS) -n logical -m "not (medium or slow or whole or timing)" tests/unit $(ARGS)

test: $(VENV)/.development ## run the tests, in some minutes; ARGS="-k cache" picks some
	@$(TESTS) -n auto -m "whole or not slow" $(ARGS)

test-all: $(VENV)/.development ## run those that take long as well
	@$(TESTS) -n auto $(ARGS)

faults: $(VENV)/.development ## try every fault in full, not just a tenth of it: the better part of an hour
	@FAULTS=full $(BIN)/python -m pytest tests/faults -p no:cacheprovider $(ARGS)

lint: $(VENV)/.development ## check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.development ## rewrite the sources in the house style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.documentation ## build the pages as a site, in site/
	@$(BIN)/python docs/tools/command_line.py
	@$(BIN)/python -m mkdocs build --strict --quiet
	@echo "built site/index.html"

bench: $(VENV)/.development ## run every benchmark behind the claims of docs/cost.md
	@$(BIN)/python benchmarks/record.py

clean: ## remove .venv and everything the tools have left
	rm -rf $(VENV) dist site build/out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@echo "creating $(VENV), a Python environment for whet alone (some seconds, once)"
	@$(PYTHON) -m venv $(VENV)

# A stamp stands for what was installed, so that pip runs again only when pyproject.toml changes.
$(VENV)/.run-time: pyproject.toml | $(BIN)/python
	@echo "installing whet and the packages it needs into $(VENV): about 70 MB, a minute or so, once"
	@$(INSTALL) .
	@touch $@

$(VENV)/.development: pyproject.toml | $(BIN)/python
	@echo "installing whet, the packages it needs and the test tools into $(VENV):" \
	  "about 300 MB, some minutes, once"
	@$(INSTALL) '.[dev]'
	@touch $(VENV)/.run-time $@

$(VENV)/.documentation: pyproject.toml | $(BIN)/python
	@echo "installing whet, the packages it needs and MkDocs into $(VENV): about 100 MB, a minute or so, once"
	@$(INSTALL) '.[docs]'
	@touch $(VENV)/.run-time $@
