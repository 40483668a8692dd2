# Needs Python 3.11 or newer, make and git; everything else is set up in .venv inside this folder.
# Another Python: make PYTHON=python3.12 demo

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Where there is uv, it makes the environment and fills it, which takes seconds.
UV := $(shell command -v uv 2>/dev/null)
ifdef UV
PIP := VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) --quiet pip
MAKE_VENV = $(UV) venv --quiet --seed --clear --python $(PYTHON) $(VENV)
else
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
MAKE_VENV = $(PYTHON) -m venv --clear $(VENV)
endif

# One thread a process: timings can be compared, and small problems do not pay for a thread pool.
one-thread := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# Tests that share a fixture run on one worker, in the order of tests/conftest.py. Workers hold
# gigabytes of compiled code. Each isolated run copies their page tables, and large pages, where the
# system has them, reduce the time of these copies to a third. Bytecode is kept even if the
# environment disables it, because each worker and each process of a test would compile it again.
pytest := $(one-thread) GLIBC_TUNABLES=glibc.malloc.hugetlb=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto --dist loadgroup --no-loadscope-reorder

.DELETE_ON_ERROR:
.PHONY: help setup demo test test-newest test-thorough coverage house bench peers docs docs-links format clean

help:  ## show these lines
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev  ## set up .venv with everything needed to use and develop the package

demo: $(VENV)/.package  ## compare the solvers on E-steps of real and drawn data
	@# Linear programs need no compiled code at first.
	@for solver in loopy-bp mean-field icm; do \
		$(one-thread) $(BIN)/inference-lab solve "estep(data=iris, constraints=150)" --solver $$solver > /dev/null & \
	done; wait
	$(BIN)/inference-lab compare --out runs/demo
	@echo "To go on with the command inference-lab in this shell: source $(VENV)/bin/activate"

test: $(VENV)/.dev  ## run the linter, the type checker and the tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@# The type checker has one processor, and takes a minute the first time.
	@$(MAKE) --no-print-directory --jobs 2 types pytest

.PHONY: types pytest rooms newest
types:
	$(BIN)/mypy

pytest:
	$(pytest)

# The rooms whose code and tests touch other libraries most, which are newer on a newer Python.
rooms:
	$(pytest) $(addprefix tests/,constraints data processes harness distortions certificates clustering)

newest: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs 2 types rooms

test-newest: $(VENV)/.dev  ## check types, and the rooms beside other libraries, on the newest Python here, in .venv-3.x
	@set -- $$(.ci/newest-python $(BIN)/python); \
	if [ $$# = 0 ]; then echo "There is no newer Python here than that of $(VENV)"; \
	else $(MAKE) --no-print-directory PYTHON=$$2 VENV=.venv-$$1 newest; fi

test-thorough: $(VENV)/.dev  ## run the tests with many more random examples each: hours
	$(pytest) --hypothesis-profile thorough

coverage: $(VENV)/.dev  ## say which lines and branches of the kernels tests run, interpreted: ten minutes
	NUMBA_DISABLE_JIT=1 $(one-thread) $(BIN)/python tests/kernel_coverage.py

house: $(VENV)/.dev  ## count lines by room and ring, and name import circles, large files and functions
	@$(BIN)/python tests/house.py

bench: $(VENV)/.dev  ## run the benchmarks, and measure how time and memory grow
	$(one-thread) $(BIN)/python -m pytest benchmarks --benchmark-only
	$(one-thread) $(BIN)/python benchmarks/scaling.py
	$(one-thread) $(BIN)/python benchmarks/harness.py

# What their own lists of requirements ask for has been renamed, or is not imported.
peers-of-any = pytoulbar2 ortools pyagrum gco-wrapper PyMaxflow thinqpbo dwave-samplers
peers-alone = pgmax "jax<0.7" "jaxlib<0.7" ml_dtypes opt_einsum active-semi-supervised-clustering metric-learn \
	k-means-constrained six

peers:  ## measure beside other projects, whose packages go into build/peers, and write docs/peers.md
	$(PYTHON) -m venv build/peers
	build/peers/bin/pip install --quiet --editable .
	@# A row whose package cannot be installed is noted as not measured.
	for package in $(peers-of-any); do build/peers/bin/pip install --quiet $$package; done; true
	-build/peers/bin/pip install --quiet --no-deps $(peers-alone)
	$(one-thread) build/peers/bin/python benchmarks/peers.py --docs

docs: $(VENV)/.dev  ## build the site in build/docs, with all examples run: some minutes the first time
	$(one-thread) $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs
	INFERENCE_LAB_SITE=required $(BIN)/python -m pytest --quiet tests/test_site.py
	@echo "The site is in build/docs/index.html"

docs-links: $(VENV)/.dev  ## check the links of the site, which takes a network
	$(BIN)/sphinx-build --quiet --builder linkcheck -D sphinx_gallery_conf.plot_gallery=False docs build/links

format: $(VENV)/.dev  ## format the code, and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Compiled kernels lie in the user's cache folder, which all clones share; docs/howto/first-run.md.
clean:  ## remove .venv, caches and build products; results in runs/ and compiled kernels stay
	rm -rf $(VENV) .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are made when everything worked, so that a set-up that was cut short is done again.

$(VENV)/.package: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not that;" \
	       "name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(if $(UV),true,$(PYTHON) -c 'import ensurepip, venv') || { \
	  echo "'$(PYTHON)' comes without the modules that set up a virtual environment;" \
	       "on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV): a minute or two, once"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(MAKE_VENV)
	@# Dependency groups need pip 25.1.
	@$(if $(UV),true,$(PIP) install --upgrade pip)
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.package
	@echo "Adding the tools for development"
	@$(PIP) install --group dev --editable '.[report,images,cluster]'
	@# Solvers of other projects; where there are no wheels for them, their tests are skipped.
	@$(PIP) install --only-binary ortools --only-binary pytoulbar2 --editable '.[all]' || \
	  echo "The optional solvers cannot be installed here; the rest is complete" >&2
	@touch $@
