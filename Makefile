# One file of commands; `make` alone lists them. Everything runs from .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
TEST_STAMP := $(VENV)/.installed-test
CONSTRAINTS := requirements/constraints.txt
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PYTEST_ARGS ?=
# Several at a time, each file (and all that is on the test cluster) by one process.
PARALLEL := -n auto --maxprocesses 4 --dist loadgroup
BENCH ?= all
# For test-torch: one build of one version, in an environment of its own in the cache.
VERSION ?= installed
TORCH_BUILD ?= +cpu
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH_VENV_OF = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/midflight/torch-$(1)
TORCH_VENV = $(call TORCH_VENV_OF,$(VERSION))
TORCH_VERSIONS := 2.6.0 2.9.1
LOCK_VENV = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/midflight/lock
LOCK = $(LOCK_VENV)/bin/uv --quiet pip compile --generate-hashes --universal --python-version 3.11 \
	--no-header --no-annotate --upgrade -c $(LOCK_VENV)/constraints.txt
TORCH_TESTS := $(addsuffix .py,$(addprefix tests/runtime/test_,torch_private \
	group public_group sockets waits keystore channel transfer relay room \
	gradients deterministic loops optimizers job data feed \
	holdings tree differences checksums claims terms agreement next_world checkpoints \
	eligibility replay shadow)) \
	tests/e2e/test_resizing.py::test_a_job_is_made_larger_and_smaller_while_it_trains \
	tests/e2e/test_shadow.py::test_the_others_train_on_while_a_newcomer_receives_the_state \
	tests/e2e/test_failures.py::test_the_death_of_a_member_costs_the_step_in_flight \
	tests/e2e/test_determinism.py

.DEFAULT_GOAL := help
.PHONY: help .venv demo test test-fast test-torch test-torches simulate fuzz lock sbom lint format bench clean

help: ## list these commands
	@awk -F ':.*## ' '/^[.a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

.venv: $(STAMP) ## make the environment and install into it (the others do this by themselves)

# torch goes first, so that its exact version is there before anything asks for a looser one.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v < (3, 11) and sys.exit(f"Midflight needs Python 3.11 or later and found {v[0]}.{v[1]}: make PYTHON=python3.11")'
	@echo "installing into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -c $(CONSTRAINTS) "$$(grep '^torch==' $(CONSTRAINTS))"
	@$(PIP) install -c $(CONSTRAINTS) -e '.[torch,kubernetes,dev]'
	@touch $@

$(BENCH_STAMP): $(STAMP)
	@$(PIP) install -c $(CONSTRAINTS) -e '.[torch,bench]'
	@touch $@

# Whatever some tests need beyond that: TensorFlow, and the frameworks of `integrations`.
$(TEST_STAMP): $(STAMP)
	@$(PIP) install -c $(CONSTRAINTS) -e '.[torch,kubernetes,dev,tensorflow,transformers,lightning,accelerate]'
	@touch $@

# Not what the above install, which take what is at hand; these are for images and for whoever asks.
lock: ## lock the requirements of the image and of development, with hashes
	@$(PYTHON) -m venv $(LOCK_VENV)
	@$(LOCK_VENV)/bin/pip --quiet install -c $(CONSTRAINTS) uv
	@grep -v '^torch' $(CONSTRAINTS) > $(LOCK_VENV)/constraints.txt
	@$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])' \
		> $(LOCK_VENV)/build.in
	@$(LOCK) $(LOCK_VENV)/build.in -o requirements/build.txt
	@$(LOCK) pyproject.toml --extra kubernetes -o requirements/image.txt
	@$(LOCK) pyproject.toml $(LOCK_VENV)/build.in --extra kubernetes --extra dev -o requirements/dev.txt

sbom: $(STAMP) ## say what is installed here, as CycloneDX (the image has its own: /opt/venv/sbom.cdx.json)
	@$(BIN)/python requirements/sbom.py

demo: $(STAMP) ## a tour: a small cluster here, a job that grows, shrinks, is struck, and what it cost
	@$(BIN)/python examples/demo flight.svg

test: $(TEST_STAMP) ## run every test (PYTEST_ARGS adds options)
	@$(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

test-fast: $(STAMP) ## run the inner loop, under a minute: all but the slow tests
	@$(BIN)/python -m pytest -m "not slow" $(PARALLEL) $(PYTEST_ARGS)

test-torch: ## run what depends on torch on another one (VERSION=2.9.1, or the one that PYTHON has)
	@$(PYTHON) -m venv $(if $(filter installed,$(VERSION)),--system-site-packages) $(TORCH_VENV)
	@grep -v '^torch' $(CONSTRAINTS) > $(TORCH_VENV)/constraints.txt
	@$(if $(filter installed,$(VERSION)),,$(TORCH_VENV)/bin/pip --quiet install \
		--extra-index-url $(TORCH_INDEX) torch==$(VERSION)$(TORCH_BUILD))
	@$(TORCH_VENV)/bin/pip --quiet install -c $(TORCH_VENV)/constraints.txt \
		-e . pytest pytest-timeout numpy hypothesis
	@$(TORCH_VENV)/bin/python -c 'import torch; print("torch", torch.__version__)'
	@$(TORCH_VENV)/bin/python -m pytest --noconftest $(TORCH_TESTS) $(PYTEST_ARGS)

test-torches: ## the same on each supported version whose environment is there already
	@for version in $(TORCH_VERSIONS); do \
		if [ -x $(call TORCH_VENV_OF,$$version)/bin/pytest ]; then \
			$(MAKE) --no-print-directory test-torch VERSION=$$version TORCH_BUILD= || exit 1; \
		else \
			echo "torch $$version was not tested: \`make test-torch VERSION=$$version\` installs and tests it"; \
		fi; \
	done

simulate: $(STAMP) ## run the core under simulated faults (ARGS="--seeds 0:2000 --for 600", or "--story SEED")
	@$(BIN)/python -m tests.simulation $(ARGS)

fuzz: $(STAMP) ## feed damaged input to everything that reads (COUNT=10000000 takes a night)
	@$(BIN)/python -m tests.fuzz $(or $(COUNT),1000000) $(or $(SEED),0)

# What images run that have an older Python than this one; see src/midflight/python310.py.
PROVIDED := $(addprefix src/midflight/, *.py agent cli compat coordinator protocol run runtime shims/*.py store)

lint: $(STAMP) ## check style, format, types and import contracts
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/mypy --python-version 3.10 $(PROVIDED)
	@$(BIN)/lint-imports --no-logo

format: $(STAMP) ## put the code into shape
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(BENCH_STAMP) ## measure Midflight beside its peers (BENCH=steady|resize|failure|join|coordinator|flight|wire|cli|dropin|kubernetes)
	@$(BIN)/python -m bench $(BENCH)

clean: ## remove caches and build outputs; .venv stays
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find src tests bench examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
