# Each target sets itself up: the first one called builds .venv, later ones find it ready.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test kernels torture real gpu lint fmt bench clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
TORCH := .venv-kernels

help: ## Show this list.
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/make \1\t\2/p' Makefile | expand -t 12

run: $(READY) ## Run the quickstart to its verdict, verify the run, stop the server that it has restored.
	@PATH="$(CURDIR)/$(BIN):$$PATH"; before=$$(ls logs); code=0; \
	$(BIN)/bisect-agent run quickstart --runs logs || code=$$?; \
	run=$$(comm -13 <(echo "$$before") <(ls logs)); \
	if [[ -n "$$run" ]]; then \
		$(BIN)/bisect-agent verify "logs/$$run" || code=$$(( code ? code : $$? )); \
		$(BIN)/bisect-agent stop "logs/$$run" || code=$$(( code ? code : $$? )); \
	fi; \
	exit $$code

# A server of OpenSSH hides the environment of its processes: beside tests in which a supervisor is killed,
# these look like what it may have left behind.
SSH := tests/hosts tests/e2e/test_ssh.py
# What these see of the whole machine must be theirs.
ALONE := tests/target/test_around.py tests/weapons/test_disks.py

test: $(READY) ## Run the tests, two at a time: they mostly wait.
	$(BIN)/pytest --numprocesses 2 --dist loadfile $(patsubst %,--ignore=%,$(SSH) $(ALONE))
	$(BIN)/pytest --numprocesses 2 --dist loadfile $(SSH)
	$(BIN)/pytest $(ALONE)

kernels: $(TORCH)/ready ## Run the kernels' tests, interpreted: no GPU is needed, but torch is (a large download).
	TRITON_INTERPRET=1 $(TORCH)/bin/pytest --numprocesses 2 tests/kernels
	$(TORCH)/bin/pytest tests/kernels/test_hopper.py

torture: $(READY) ## Kill the agent in hundreds of places, and see that each run comes to the same end.
	$(BIN)/pytest -m torture tests/torture

real: $(READY) $(TORCH)/ready ## Find out why the decode engine and real servers die on a CPU (7 GB to install; half an hour).
	playbooks/sglang-cpu/setup.sh sglang
	playbooks/sglang-cpu/setup.sh vllm
	$(BIN)/python tests/real/run.py
	$(BIN)/python tests/real/run.py --over-ssh

gpu: $(READY) ## Pack into dist/gpu what a GPU host without a network needs to run playbooks/gpu (a large download).
	PYTHON=$(BIN)/python playbooks/gpu/archive.sh dist/gpu

lint: $(READY) ## Check style, types, architecture, dependencies and spelling.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	MYPYPATH=playbooks/quickstart $(BIN)/mypy playbooks/quickstart
	MYPYPATH=kernels $(BIN)/mypy kernels
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry .
	$(BIN)/codespell

fmt: $(READY) ## Format the code and repair what can be repaired.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## Measure what is claimed about speed.
	@code=0; for program in tests/bench/*.py; do echo "$$program"; $(BIN)/python "$$program" || code=$$?; done; exit $$code

clean: ## Remove both environments and all caches. Runs in logs/ stay: they are evidence.
	rm -rf $(VENV) $(TORCH) dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# `--group` came with pip 25.1; the pip that Python brings may be older.
$(TORCH)/ready: EXTRA := [kernels]
$(TORCH)/ready: MORE := --requirement tests/kernels/requirements.txt
$(TORCH)/ready: tests/kernels/requirements.txt
$(READY) $(TORCH)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		found=$$($(PYTHON) --version 2>&1) || found="not there"; \
		echo "make: Python 3.11 or later is needed, and $(PYTHON) is $$found" >&2; \
		echo "  try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
		exit 1; \
	}
	@echo "setting up $(@D), once; this takes a minute or two" >&2
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	{ \
		$(PYTHON) -m venv $(@D) && \
		$(@D)/bin/python -m pip install --upgrade "pip>=25.1" && \
		$(@D)/bin/python -m pip install $(MORE) --editable ".$(EXTRA)" --group dev; \
	} >"$$log" 2>&1 </dev/null || { \
		cat "$$log" >&2; \
		echo "make: $(@D) could not be set up; the lines above say why" >&2; \
		exit 1; \
	}
	@touch $@
