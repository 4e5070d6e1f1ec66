# Two commands for everyone: `make demo` runs the main job, `make test` the tests. Both set up .venv by themselves.
PYTHON ?= python3
RUN := .venv/bin/python
SOURCES := pyproject.toml constraints.txt $(wildcard hatch_build.py) $(wildcard src/goru/kernels/csrc/*/*)

.PHONY: demo test soak gpu bench docs wheel compat clean results

demo: .venv/installed
	$(RUN) -m goru reproduce copying denoise parenthesis --quick

test: .venv/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pyright
	$(RUN) -m pytest -n auto -m "not soak"

# Many kills, long fuzzing, full-size runs: an hour or more.
soak: .venv/installed
	$(RUN) -m pytest -n auto -m soak

# The tests of the triton backend, in Triton's interpreter where there is no device. Triton takes 700 MB: `make test`
# skips them without it.
gpu: .venv/installed
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt triton
	$(RUN) -m pytest tests/kernels/test_triton.py -m "not soak" -n auto -rs

bench: .venv/installed
	$(RUN) -m benchmarks

# The documentation as a site; anything doubtful, such as a link to nowhere, is an error.
docs: .venv/installed
	$(RUN) -m sphinx --fail-on-warning --keep-going --quiet -d build/doctrees docs site
	@echo "site/index.html"

# The committed record, and the results in the README, from a folder of runs: make results RUNS=folder
# (RUNS=results: from the record itself).
RUNS ?= runs
results: .venv/installed
	$(RUN) -m goru record --runs "$(RUNS)" --out results --readme README.md

# A source distribution, and the wheel that is built from it; on Linux auditwheel confirms its platform tag.
wheel: .venv/installed
	rm -rf dist build/wheel
	$(RUN) -m hatchling build -t sdist -d dist
	$(RUN) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel dist/goru-*.tar.gz
	if [ "$$(uname)" = Linux ]; then PATH="$(CURDIR)/.venv/bin:$$PATH" $(RUN) -m auditwheel repair --wheel-dir dist build/wheel/goru-*.whl; \
	else cp build/wheel/goru-*.whl dist; fi
	@ls dist

# The library's tests on other versions of torch, in environments in the user's cache folder (about 5 GB each, kept).
# TORCH="2.6.0" for one alone; PYTHON chooses the Python.
TORCH ?= 2.6.0 2.9.1 2.13.0 2.15.0
compat:
	$(PYTHON) tests/compat.py $(TORCH)

clean:
	rm -rf .venv build dist site .pytest_cache .ruff_cache .hypothesis

# Reinstalled when dependencies or C++ sources change; the Python sources are read in place.
.venv/installed: $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "goru needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@
