# make run    set up and run the main job         make test   set up, lint, type check, test
# make bench  set up with peers and benchmark     make lock   pin the newest allowed versions
# make soak   set up, then hours of ill treatment make clean  remove the environment and caches
# make docs   build the site into build/site
# make wheel-test  build the wheel, install it alone in a fresh environment, run it there

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup run test lint bench soak docs wheel-test lock clean

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "thermoloom needs Python 3.11 or later (PYTHON=python3.12 make ...)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { echo "no venv module: install python3-venv"; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: $(READY)
	$(BIN)/thermoloom demo
	$(BIN)/thermoloom run comparison

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Kernels are compiled once, while one core has nothing to do, and not by every process of the tests.
test: $(READY)
	@$(BIN)/python -c 'from thermoloom.engines import engine; engine().warm_up()' & \
		$(MAKE) --no-print-directory lint && wait
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks

soak: $(READY)
	$(BIN)/python -m soak

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "open build/site/index.html"

wheel-test: $(READY)
	$(BIN)/python -m pytest --wheel tests/test_wheel.py

# The lock holds names, versions and hashes only: no address of any index.
lock: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-tools
	$(BIN)/python -m piptools compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
		--no-header --no-emit-options \
		--extra dev --extra cluster --extra docs --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
