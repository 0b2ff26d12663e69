# make setup  install everything into .venv        make run    set up, show a first page, run the comparison
# make test   set up, lint, type check, test
# make bench  set up with peers, benchmark        make lock   pin the newest allowed versions
# make soak   set up, then hours of stress tests  make clean  remove the environment and caches
# make docs   build the site into build/site      make pictures  draw the pictures of the docs anew
# make wheel-test  build the wheel, install it alone in a fresh environment, run it there
# make test-lowest test with the lowest allowed version of every dependency
# make test-libraries  test the portable engine in PyTorch and JAX
# make coverage    line coverage of the tests     make review  the Scientific Python repository review
# PYTHON=python3.13 make ...  use another Python, in an environment beside .venv

PYTHON ?= python3
VENV := $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup run test test-lowest test-libraries coverage review lint bench soak docs pictures wheel-test lock clean

setup: $(READY)

# uv installs the pinned packages ten times faster than pip; if uv cannot reach them, pip installs them.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) does not run, or is older than Python 3.11; name another: make ... PYTHON=python3.12"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { echo "no venv module: install python3-venv"; exit 2; }
	@echo "installing what thermoloom needs into $(VENV)"
	@sed -n '/^uv==/,/# via/p' requirements.lock > $(VENV)/uv.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: $(READY)
	$(BIN)/thermoloom demo
	$(BIN)/thermoloom run comparison

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python docs/build/check_prose.py

# Kernels are compiled once, on the core that lint leaves idle, rather than in every test process.
test: $(READY)
	@$(BIN)/python -c 'from thermoloom.engines import engine; engine().warm_up()' & \
		$(MAKE) --no-print-directory lint && wait
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# In a separate environment, where the lowest versions replace the pinned ones.
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct -e '.[cluster]' --group dev
	.venv-lowest/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -p no:cacheprovider --ignore tests/test_docs.py

# PyTorch (the CPU build where there is one) and JAX, in a separate environment.
test-libraries:
	$(PYTHON) -m venv .venv-libraries
	.venv-libraries/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'  # knows --group
	.venv-libraries/bin/python -m pip install --quiet --disable-pip-version-check -e '.[bench]' --group dev
	.venv-libraries/bin/python -m pytest -p no:cacheprovider tests/test_portable.py tests/test_rules.py tests/test_libraries.py

coverage: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov=thermoloom --cov-report=term:skip-covered

review: $(READY)
	$(BIN)/python -m repo_review .

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks

soak: $(READY)
	$(BIN)/python -m soak

docs: $(READY)
	$(BIN)/python docs/build/make_site.py

# MNIST=DIR names a folder of the IDX files; without it they are downloaded. Chromium shows the lab.
pictures: $(READY)
	$(BIN)/python docs/build/make_pictures.py $(if $(MNIST),--mnist $(MNIST))

wheel-test: $(READY)
	$(BIN)/python -m pytest --wheel tests/test_wheel.py

# The lock file contains only names, versions and hashes, not the address of any index.
lock: $(READY)
	$(BIN)/uv pip compile --quiet --upgrade --python $(BIN)/python --generate-hashes --no-header \
		--group dev --group docs --extra cluster --output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache
