# Three commands do everything, set-up included:
#   make demo   analyze an example and say where the report is
#   make test   lint, types, import contract, tests
#   make check  the same within a minute, without TensorFlow
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON ?= python3
BUDGET ?= 60
TOGETHER ?= 3
VERSIONS ?=
PYTHONS ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := csv
HOROVOD := 0.28.1
HOROVOD_VENV := .venv-horovod
HOROVOD_READY := $(HOROVOD_VENV)/.horovod-$(HOROVOD)
export TF_CPP_MIN_LOG_LEVEL ?= 2
unexport PYTHONDONTWRITEBYTECODE # without byte code each of some hundred processes compiles the package anew

.PHONY: help demo test check lint types imports test-one-core test-all test-exhaustive test-horovod test-versions soundness \
  recordings compare-recordings browser lines clean

help:
	@echo "make demo [DEMO=csv]      analyze an example and say where the report is"
	@echo "make test                lint, types, import contract, tests"
	@echo "make check               the same within a minute: the tests without TensorFlow that are fast"
	@echo "make test-exhaustive     the cases that make test leaves out: another one there goes the same way"
	@echo "make lines               how large the package, its folders and the tests are"
	@echo "make soundness           hunts for wrong rewrites for hours; interrupted, it goes on (HUNT='--minutes 30')"
	@echo "make recordings          measures the examples once, and keeps the answers and what came of them"
	@echo "make compare-recordings  runs them with these answers: what differs was changed in the code since"
	@echo "make test-versions       each supported TensorFlow and Python, from the registries (VERSIONS='2.18 2.20/3.13')"
	@echo "make test-horovod        two ranks of a Horovod built here train the example, and are analysed in step"

$(BIN)/python $(HOROVOD_VENV)/bin/python: %/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "pipetune needs Python 3.11 or later; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $*

$(INSTALLED) $(HOROVOD_VENV)/.installed: %/.installed: pyproject.toml pipetune/core/version.py | %/bin/python
	$*/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/python examples/$(DEMO)/make_data.py
	$(BIN)/pipetune analyze --budget $(BUDGET) --out reports/$(DEMO) examples/$(DEMO)/train.py
	@echo "The report: $(CURDIR)/reports/$(DEMO)/report.html"

test: lint types imports browser test-one-core test-all

check: lint types imports
	$(PYTEST) -n 2 $(BY_FILE) -m "not slow and not browser and not exhaustive" \
	  $$(grep -rL --include='test_*.py' mark.tensorflow tests)

lines: $(INSTALLED)
	@$(BIN)/python -m tests.size

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports --no-cache

# A chromium for the tests of the report; without one they are skipped, and say so.
browser:
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; \
	then true; \
	elif ! command -v apt-get >/dev/null; \
	then echo "No chromium and no apt-get: the browser tests will be skipped." >&2; \
	else \
	  if [ "$$(id -u)" = 0 ]; then root=""; else root="sudo -n"; fi; \
	  { $$root apt-get update -qq && $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || echo "chromium cannot be installed here: the browser tests will be skipped." >&2; \
	fi

# Each file in one process, so that what its tests share is made once; in the order of tests/conftest.py. On two cores
# three processes are faster than two: tests wait for others, and for time to pass. A process that crashes is not started
# again: it would run the same test.
PYTEST := $(BIN)/python -m pytest -q -raR
BY_FILE := --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# One processor is where thread pools and timing assumptions break: what captures, replays, compares and measures runs
# with one too, each process of tests on a processor of its own.
test-one-core: $(INSTALLED)
	$(PYTEST) -n 2 $(BY_FILE) --one-core -m "one_core and not exhaustive" \
	  $$(grep -rl --include='test_*.py' mark.one_core tests)

# What decides by what it measures runs with nothing beside it, and once more where it fails: other programs use the
# machine too. Nothing else is run again.
ALONE := tests/e2e/test_the_whole_way.py tests/e2e/test_workers_in_step.py tests/measure/test_differencing.py \
  tests/stages/test_epoch_starts.py tests/stages/test_epochs.py
FIGURES := tests/benchmarks/accuracy/test_attribution.py tests/benchmarks/accuracy/test_bottleneck.py
ONCE_MORE := --reruns 1 --reruns-delay 10

test-all: $(INSTALLED)
	$(PYTEST) -n $(TOGETHER) $(BY_FILE) $(addprefix --ignore ,$(ALONE))
	$(PYTEST) $(ONCE_MORE) $(ALONE)

test-exhaustive: $(INSTALLED)
	$(PYTEST) -n $(TOGETHER) $(BY_FILE) -m exhaustive $(addprefix --ignore ,$(ALONE) $(FIGURES))
	$(PYTEST) $(ONCE_MORE) -m exhaustive $(ALONE) $(FIGURES)

# Thousands of functions, pipelines and scripts composed at random, a new seed each time; `python -m tests.soundness
# --help` has the rest. The figures go into reports/soundness.json.
soundness: $(INSTALLED)
	$(BIN)/python -m tests.soundness $(HUNT)

# What a change of the code changes in sessions, patches, modules and reports, where every measurement is answered from a
# recording (some 30 minutes for all examples, and 5 to compare with; EXAMPLES="csv table" for some).
recordings: $(INSTALLED)
	$(BIN)/python -m tests.recorded record $(EXAMPLES)
	$(BIN)/python -m tests.recorded replay $(EXAMPLES)

compare-recordings: $(INSTALLED)
	$(BIN)/python -m tests.recorded compare $(EXAMPLES)

# An environment of 3 GB for each, kept in the user's cache folder, and some ten minutes. PYTHONS="/opt/python3.13/bin"
# names folders with interpreters that are not on the PATH; TRY has further options (`python -m tests.versions --help`).
test-versions:
	PATH="$(PYTHONS:%=%:)$$PATH" $(PYTHON) -m tests.versions $(VERSIONS) $(TRY)

# A real Horovod beside the stand-in of the tests: built from its source, some minutes, so no part of `test`, and in an
# environment of its own. As published it does not compile with this TensorFlow; without its operations for XLA it does.
# Debian and Ubuntu: apt-get install cmake g++ libfarmhash-dev libhighwayhash-dev (TensorFlow's headers include the two).
test-horovod: $(HOROVOD_READY) $(HOROVOD_VENV)/.installed
	$(HOROVOD_VENV)/bin/python -m pytest -q -m horovod tests/distributed

$(HOROVOD_READY):
	@missing=""; \
	for command in cmake g++; do command -v $$command >/dev/null || missing+=" $$command"; done; \
	for header in farmhash highwayhash/arch_specific; do \
	  g++ -E -x c++ -include $$header.h /dev/null >/dev/null 2>&1 || missing+=" lib$${header%%/*}-dev"; \
	done; \
	[ -z "$$missing" ] \
	  || { echo "Horovod cannot be compiled here; on Debian and Ubuntu: apt-get install$$missing" >&2; exit 1; }
	$(MAKE) --no-print-directory $(HOROVOD_VENV)/.installed
	rm -rf $(HOROVOD_VENV)/source && mkdir $(HOROVOD_VENV)/source
	$(HOROVOD_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	  setuptools wheel packaging cloudpickle psutil pyyaml
	$(HOROVOD_VENV)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
	  --no-build-isolation --dest $(HOROVOD_VENV)/source horovod==$(HOROVOD)
	tar -C $(HOROVOD_VENV)/source --strip-components 1 -xf $(HOROVOD_VENV)/source/horovod-$(HOROVOD).tar.gz
	sed -i /xla_mpi_ops.cc/d $(HOROVOD_VENV)/source/horovod/tensorflow/CMakeLists.txt
	PATH="$(CURDIR)/$(HOROVOD_VENV)/bin:$$PATH" MAKEFLAGS=-j$$(nproc) \
	  HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 \
	  HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 \
	  $(HOROVOD_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  ./$(HOROVOD_VENV)/source
	rm -rf $(HOROVOD_VENV)/source
	@touch $@

clean:
	rm -rf $(VENV) $(HOROVOD_VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
