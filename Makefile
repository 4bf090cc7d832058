# `make demo` and `make test` set everything up in .venv and need only python3, make and a package index.
PYTHON ?= python3
BIN := .venv/bin
# Where the public datasets lie, when they have been put beside the project.
ifneq ($(wildcard ../shared/data),)
export DGCF_DATA_HOME ?= $(abspath ../shared/data)
endif

# Threads that wait by spinning make training many times slower on a busy machine.
export OMP_WAIT_POLICY ?= passive

.PHONY: demo serve test test-slow fuzz mutants bench lint format docs audit lock sbom oldest clean

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/installed
	$(BIN)/python -m dgcf.demo

# The model of the demo behind HTTP, with the page; ^C stops it. It is trained first if demo/run is not there.
PORT ?= 8000
serve: .venv/installed
	$(BIN)/python -m dgcf.demo serve --port $(PORT)

test: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: .venv/installed
	$(BIN)/python -m pytest -m 'slow or not slow'

# What `make test` samples, in long form: property tests with untried examples, hostile inputs of every reader, crafted
# and damaged files, and kills at random system calls. FUZZ_SEED chooses others.
FUZZ_SEED ?= 0
fuzz: .venv/installed
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n 2 -m hypothesis
	$(BIN)/python -m tests.fuzz.readers --count 20000 --seed $(FUZZ_SEED)
	$(BIN)/python -m tests.fuzz.crafted --count 5000 --seed $(FUZZ_SEED)
	$(BIN)/python -m tests.fuzz.kills --count 200 --seed $(FUZZ_SEED)
	$(BIN)/python -m tests.fuzz.service --count 10000 --seed $(FUZZ_SEED)

# Whether the tests notice when the code is changed. One process, so that timeouts mean something.
mutants: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mutants]'
	rm -rf mutants
	HYPOTHESIS_PROFILE=mutants OMP_NUM_THREADS=1 $(BIN)/mutmut run --max-children 1
	$(BIN)/python tests/mutants/report.py

# Whether anything has become slower than what benchmarks/recorded.json says of it.
bench: .venv/installed
	$(BIN)/python -m benchmarks.bench

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict

# Tools that check the code and the packages.
.venv/audited: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[audit]'
	touch $@

# Unsafe constructs in the code, and known vulnerabilities of the locked packages.
audit: .venv/audited
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src
	$(BIN)/python .ci/vulnerabilities.py

# Resolve the development environment anew into requirements.lock and requirements-cuda.lock, and those of the images.
lock: .venv/installed
	$(BIN)/python .ci/lock.py
	$(BIN)/python deploy/lock.py

# What is installed in .venv, as a CycloneDX document.
sbom: .venv/audited
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --short-PURLs --output-reproducible \
		--output-file sbom.cdx.json $(BIN)/python

# The tests with the oldest packages that pyproject.toml allows, in an environment of some 6 GB of its own.
oldest:
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		-c constraints-oldest.txt -e '.[dev,ann]'
	.venv-oldest/bin/python -m pytest -n 1

clean:
	rm -rf .venv .venv-oldest mutants sbom.cdx.json .pytest_cache .mypy_cache .ruff_cache .hypothesis site demo
