# What a newcomer types. Everything lives in .venv; a second call sets up nothing again.
#
#   OP=softmax           another op for `make check`, which runs: perfci check --op broadcast
#   PYTHON=python3.12    another interpreter; if it has torch already, its torch and Triton are used and left alone
#   TORCH_INDEX=URL      where pip finds torch's CPU build, if not in its own sources

PYTHON ?= python3
OP ?= broadcast
VENV := .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml requirements/cpu.txt requirements/setup.sh

.DEFAULT_GOAL := help
.PHONY: help check test nightly coverage lint docs setup clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' Makefile

check: $(VENV)/.ready ## Check one op: perfci check --op broadcast; OP=softmax names another
	@$(BIN)/perfci check --op $(OP); status=$$?; \
	echo "To go on: source $(BIN)/activate, then perfci --help or perfci check --op $(OP)"; exit $$status

test: $(VENV)/.ready-dev ## Run the tests
	@$(BIN)/python -m pytest -n auto --dist loadscope

nightly: $(VENV)/.ready-dev ## Run the tests that `make test` leaves out
	@$(BIN)/python -m pytest -n auto --dist loadscope -m nightly
	@HYPOTHESIS_PROFILE=night $(BIN)/python -m pytest -n auto --dist loadscope tests/fuzz

COVERED := tests/judge tests/core tests/statistics tests/thresholds tests/store tests/report tests/ops tests/git tests/extensions/common tests/extensions/note tests/measure tests/cli

coverage: $(VENV)/.ready-dev ## Run the tests that start few processes, and fail below the floor of pyproject.toml
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -m "not slow and not nightly" $(COVERED)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

lint: $(VENV)/.ready-dev ## Check style, types and imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache

docs: $(VENV)/.ready-docs ## Build the site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site: site/index.html"

setup: $(VENV)/.ready ## Only set up .venv

clean: ## Remove .venv and site/
	rm -rf $(VENV) site

$(VENV)/.ready: $(INPUTS)
	@PYTHON=$(PYTHON) VENV=$(VENV) TORCH_INDEX=$(TORCH_INDEX) sh requirements/setup.sh .
	@touch $@

$(VENV)/.ready-docs: $(INPUTS)
	@PYTHON=$(PYTHON) VENV=$(VENV) TORCH_INDEX=$(TORCH_INDEX) sh requirements/setup.sh '.[docs]'
	@touch $(VENV)/.ready $@

$(VENV)/.ready-dev: $(INPUTS)
	@PYTHON=$(PYTHON) VENV=$(VENV) TORCH_INDEX=$(TORCH_INDEX) sh requirements/setup.sh '.[dev]'
	@touch $(VENV)/.ready $@

$(VENV)/.ready-all: $(INPUTS)
	@PYTHON=$(PYTHON) VENV=$(VENV) TORCH_INDEX=$(TORCH_INDEX) sh requirements/setup.sh '.[dev,docs]'
	@touch $(VENV)/.ready $(VENV)/.ready-dev $(VENV)/.ready-docs $@
