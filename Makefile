# Two commands do everything on a machine that has Python, pip and make:
#   make demo   the whole job on a shipped example        make test   lint, types and tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCK   := requirements/dev.lock
STAMP  := $(VENV)/.installed
# The training tests have an environment of their own, so that `make test` needs no torch.
TORCH       := torch==2.13.0
TRAIN_VENV  := .venv-train
TRAIN_BIN   := $(TRAIN_VENV)/bin
TRAIN_LOCK  := requirements/train.lock
TRAIN_STAMP := $(TRAIN_VENV)/.installed
# So have the tests on a Ray cluster: Ray weighs 240 MB.
RAY_VENV  := .venv-ray
RAY_BIN   := $(RAY_VENV)/bin
RAY_LOCK  := requirements/ray.lock
RAY_STAMP := $(RAY_VENV)/.installed
# And so have the tests of AIM and MST, which need JAX.
MARGINALS_VENV  := .venv-marginals
MARGINALS_BIN   := $(MARGINALS_VENV)/bin
MARGINALS_LOCK  := requirements/marginals.lock
MARGINALS_STAMP := $(MARGINALS_VENV)/.installed
AUDIT_VENV  := .venv-audit

.DEFAULT_GOAL := help
.PHONY: help demo test test-train test-ray test-marginals lint format audit fuzz bench docs lock install clean package sbom
.PHONY: audit-deps

help:
	@echo "make demo    synthesise a private table from a shipped example (offline after install)"
	@echo "make test    lint, types and tests"
	@echo "make test-train  the tests that need torch, in an environment of their own"
	@echo "make test-ray    the tests on a Ray cluster of three nodes, in an environment of their own"
	@echo "make test-marginals  the tests of aim and mst, in an environment of their own"
	@echo "make lint    ruff, mypy and the direction of imports"
	@echo "make audit   the statistical privacy audit at full size"
	@echo "make fuzz    coverage-guided fuzzing of every parser, SECONDS=60 for each (needs atheris; Linux)"
	@echo "make bench   speed and memory, as ratios within one run"
	@echo "make docs    the documentation as a site in site/"
	@echo "make package     wheel and source package in dist/, installed and tried in an environment of their own"
	@echo "make audit-deps  known vulnerabilities of everything that is locked"

install: $(STAMP)

# Locked versions with hashes; our own package on top, without building anything in isolation.
$(STAMP): $(LOCK) pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing locked dependencies into $(VENV) (first time: a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: install
	@$(BIN)/selpe demo

lint: install
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

test: lint
	@$(BIN)/python -m pytest -q -n auto --dist loadgroup

# torch comes first and without hashes: the same version is another file on a machine with a GPU than on one without,
# and pip takes the build that this machine's configuration offers. Everything else is locked.
$(TRAIN_STAMP): $(TRAIN_LOCK) pyproject.toml
	@test -x $(TRAIN_BIN)/python || $(PYTHON) -m venv $(TRAIN_VENV)
	@echo "installing torch and locked dependencies into $(TRAIN_VENV) (first time: a few minutes)"
	@$(TRAIN_BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@$(TRAIN_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(TRAIN_LOCK)
	@$(TRAIN_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(TRAIN_STAMP)

test-train: $(TRAIN_STAMP)
	@$(TRAIN_BIN)/python -m pytest -q -n auto --dist loadgroup tests/train tests/models/test_hf.py \
	  tests/evaluation/test_utility_roberta.py

$(RAY_STAMP): $(RAY_LOCK) pyproject.toml
	@test -x $(RAY_BIN)/python || $(PYTHON) -m venv $(RAY_VENV)
	@echo "installing Ray and locked dependencies into $(RAY_VENV) (first time: a few minutes)"
	@$(RAY_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(RAY_LOCK)
	@$(RAY_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(RAY_STAMP)

test-ray: $(RAY_STAMP)
	@$(RAY_BIN)/python -m pytest -q -n0 tests/execute
	@$(RAY_BIN)/python benchmarks/ray_throughput.py

$(MARGINALS_STAMP): $(MARGINALS_LOCK) pyproject.toml
	@test -x $(MARGINALS_BIN)/python || $(PYTHON) -m venv $(MARGINALS_VENV)
	@echo "installing Private-PGM, JAX and locked dependencies into $(MARGINALS_VENV) (first time: a few minutes)"
	@$(MARGINALS_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(MARGINALS_LOCK)
	@$(MARGINALS_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(MARGINALS_STAMP)

test-marginals: $(MARGINALS_STAMP)
	@$(MARGINALS_BIN)/python -m pytest -q -n auto --dist loadgroup tests/marginals

audit: install
	@$(BIN)/python benchmarks/audit.py && $(BIN)/python benchmarks/audit_looks.py && $(BIN)/python benchmarks/audit_counts.py
	@$(BIN)/python benchmarks/audit_measuring.py && $(BIN)/python benchmarks/audit_files.py && $(BIN)/python benchmarks/one_row_one_reading.py

SECONDS ?= 60
fuzz: install
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris==3.0.0
	@$(BIN)/python tests/fuzz/guided.py --seconds $(SECONDS)

bench: install
	@for script in selection_speed selection_signal encoder engine; do echo "== $$script"; $(BIN)/python benchmarks/$$script.py || exit 1; done

docs: install
	@$(BIN)/python docs/build_reference.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site
	@echo "site/index.html"

package: install
	@$(BIN)/python .ci/package.py

sbom: install
	@$(BIN)/python .ci/sbom.py

# --strict: a package that the service knows nothing about is a failure, not a silent pass.
audit-deps:
	@test -x $(AUDIT_VENV)/bin/python || $(PYTHON) -m venv $(AUDIT_VENV)
	@$(AUDIT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.lock
	@for lock in selpe dev train ray marginals audit build; do echo "== $$lock.lock"; \
	  $(AUDIT_VENV)/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off \
	  -r requirements/$$lock.lock || exit 1; done

# Needs uv; run by hand when dependencies change. selpe.lock is what users and the container install.
lock:
	uv pip compile --quiet --no-header --universal --python-version 3.10 --generate-hashes pyproject.toml \
	  --extra sql --extra polars --extra llamacpp --extra server --group dev --group docs -o $(LOCK)
	echo $(TORCH) | uv pip compile --quiet --no-header --universal --python-version 3.10 --generate-hashes pyproject.toml - \
	  --extra train --group dev --group train --no-emit-package torch -c $(LOCK) -o $(TRAIN_LOCK)
	uv pip compile --quiet --no-header --universal --python-version 3.10 --generate-hashes pyproject.toml \
	  --extra ray --group dev -c $(LOCK) -o $(RAY_LOCK)
	uv pip compile --quiet --no-header --universal --python-version 3.10 --generate-hashes pyproject.toml \
	  --extra marginals --group dev -c $(LOCK) -o $(MARGINALS_LOCK)
	uv pip compile --quiet --no-header --universal --python-version 3.10 --generate-hashes pyproject.toml \
	  --extra server --extra sql -c $(LOCK) -o requirements/selpe.lock
	uv pip compile --quiet --no-header --universal --python-version 3.10 --generate-hashes \
	  --group audit -c $(LOCK) -o requirements/audit.lock
	sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml | uv pip compile --quiet --no-header --universal \
	  --python-version 3.10 --generate-hashes -c $(LOCK) - -o requirements/build.lock
	$(MAKE) sbom

format: install
	@$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format --quiet .

clean:
	rm -rf $(VENV) $(TRAIN_VENV) $(RAY_VENV) $(MARGINALS_VENV) $(AUDIT_VENV) site dist .mypy_cache .ruff_cache .pytest_cache
