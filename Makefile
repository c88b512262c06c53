# What a developer types. `make` alone lists the targets.
#
#   PYTHON=python3.12      the Python that .venv is made from (3.11 or newer)
#   PY=python3             use this interpreter and what is installed beside it, and make no .venv
#   ARGS="-k triad -x"     further arguments of pytest
#   JOBS=4                 processes of `make test` (as many as cores, 8 at most, where it is not set; 0 for none beside pytest)
#   PART=chase             one part of `make gpu-accept`

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
JOBS ?= auto
PART ?=

comma := ,
# The extra that fits the driver (cu13, cu12), or nothing where no driver answers.
CUDA_EXTRA := $(shell $(PYTHON) tests/driver.py 2>/dev/null)
EXTRAS_FOR_cu13 := cu13,yardstick,dev
EXTRAS_FOR_cu12 := cu12,yardstick,tools
EXTRAS_FOR_ := dev
EXTRAS := $(EXTRAS_FOR_$(CUDA_EXTRA))

CUDA_SOURCES := $(wildcard kernels/*.cu kernels/*.cuh benchmarks/plain/*.cu)

ifdef PY
READY :=
CLANG_FORMAT := clang-format
else
PY := $(VENV)/bin/python
CLANG_FORMAT := $(VENV)/bin/clang-format
# One stamp per set of extras: with another driver, or after a change of pyproject.toml, the next call installs again.
READY := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
endif

ifdef CUDA_EXTRA
DEMO_DEVICE := cuda:0
DEMO_SAYS := make demo: an NVIDIA driver answers, so this is measured on the GPU (--device cuda:0)
else
DEMO_DEVICE := model:h200
DEMO_SAYS := make demo: no NVIDIA driver answers, so this is modelled, not measured (--device model:h200)
endif

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | column -t -s '|'

.PHONY: demo
demo: ## install into .venv and run `greenbench sweep --sms 8,16,24,32`, on the GPU if a driver answers, else modelled
	@echo "$(DEMO_SAYS)"
	@$(MAKE) -s venv
	@$(PY) -m greenbench sweep --sms 8,16,24,32 --device $(DEMO_DEVICE)
	@echo "$(DEMO_SAYS)"

.PHONY: venv
venv: $(READY) ## make .venv with everything that development needs (quick when nothing changed)

$(VENV)/.installed-%: pyproject.toml greenbench/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "greenbench needs Python 3.11 or newer, and $(PYTHON) is %d.%d: name another with PYTHON=" % sys.version_info[:2])'
	@echo "installing greenbench[$(EXTRAS)] into $(VENV), which takes a minute or more the first time" >&2
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $@

.PHONY: test
test: $(READY) ## every test that needs no GPU
	$(PY) -m pytest -m "not gpu" -n $(JOBS) --maxprocesses 8 --dist loadfile $(ARGS)

.PHONY: lint
lint: $(READY) ## ruff (rules and format), mypy, clang-format
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(CLANG_FORMAT) --dry-run --Werror $(CUDA_SOURCES)

.PHONY: format
format: $(READY) ## rewrite Python and CUDA sources in the house format
	$(PY) -m ruff check --fix
	$(PY) -m ruff format
	$(CLANG_FORMAT) -i $(CUDA_SOURCES)

.PHONY: gpu-test
gpu-test: $(READY) ## tests/gpu on this machine's GPU; without one it fails instead of skipping
	GREENBENCH_REQUIRE_GPU=1 $(PY) -m pytest tests/gpu $(ARGS)

.PHONY: gpu-accept
gpu-accept: $(READY) ## rerun the acceptance tables on this machine's GPU, all or PART=name
	$(PY) benchmarks/accept.py $(PART)

.PHONY: clean
clean: ## remove .venv, build products and caches; results stay
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
