# make audit    set up what is missing, run config/digits.yaml (or CONFIG=…) and print the answer
# make release-demo  from the audit of digits through gate and release, in results/release*
# make test     set up what is missing, run the static checks and all tests but those marked slow or slurm
# make test-all the same, then the tests marked slow (make slow) and those on a cluster (make slurm)
# make check    set up what is missing, run the static checks alone
# make reproduce SCORES=DIR   print the paper's Table 3 beside what its published score matrices in DIR say
# make numbers  render the tables of README and docs/ from the committed files that they name
# make gpu-check  compare this machine's GPU with the CPU and with itself (eight minutes), and print a table
# make docs     build the documentation as a site, site/index.html
# make advisories  print known vulnerabilities of the locked packages (pip-audit; needs the network)
# make dist     build wheel and sdist in dist/ and check them (build, twine; needs the network)
# make lock     renew envs/ from pyproject.toml
PYTHON ?= python3
CONFIG ?= config/digits.yaml
CORES ?= all
WORKERS ?= 2

VENV := .venv
READY := $(VENV)/ready
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
LOCK := envs/requirements.lock

.PHONY: audit release-demo test test-all tests slow slurm check numbers gpu-check docs reproduce advisories dist lock clean

audit: $(READY)
	@mia-audit check --with-code $(CONFIG)
	@snakemake --logger mia-audit --cores $(CORES) --configfile $(CONFIG)

SETTING := digits/vit/dp-sgd-eps8

release-demo: $(READY)
	@snakemake --logger mia-audit --cores $(CORES) --configfile config/release.yaml
	@mia-audit gate results/release --policy docs/examples/release_policy.yaml --json results/release-gate.json
	@rm -rf results/release-model
	@mia-audit release config/release.yaml --setting $(SETTING) --gate results/release-gate.json --out results/release-model

# the static checks run beside the tests; either one that fails makes the target fail
test: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 --keep-going check tests

tests: $(READY)
	pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder -m "not slow and not slurm"
	@echo "Left out: tests marked slow or slurm; make test-all runs them too"

# the files that have such tests (reading all takes a worker eight seconds more), whole audits, the longest, first
SLOW = $(shell grep --recursive --files-with-matches --extended-regexp 'mark\.slow' --include='test_*.py' tests | sort --reverse)

test-all: test slow slurm

slow: $(READY)
	pytest -n $(WORKERS) --timeout 900 --dist loadgroup -m "slow and not slurm" $(SLOW)

slurm: $(READY)
	@python tests/slurm/cluster.py check
	pytest --timeout 900 -m slurm tests/slurm

check: $(READY)
	ruff check src tests benchmarks
	ruff format --check src tests benchmarks
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint
	codespell

numbers: $(READY)
	@python benchmarks/printed_numbers.py

gpu-check: $(READY)
	@python benchmarks/gpu_check.py

docs: $(READY)
	mkdocs build --strict --quiet
	@echo "The documentation is at site/index.html"

reproduce: $(READY)
	@test -n "$(SCORES)" || { echo "make reproduce: say where the published score matrices are: make reproduce SCORES=DIR" >&2; exit 2; }
	mia-audit reproduce $(SCORES) --out results/reproduction

$(READY): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("mia-audit needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + "; give another one: make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) once: $$(grep --count == $(LOCK)) packages of $(LOCK), some 2 GB, then mia-audit itself"
	@$(PYTHON) -m venv $(VENV)
	@echo "  1/3 installing the packages (minutes, by the speed of the network)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement $(LOCK)
	@echo "  2/3 compiling them (a minute)" # on all cores, which pip does not; a few of their files are no valid Python
	@$(VENV)/bin/python -m compileall -qq -j 0 $(VENV)/lib || true
	@echo "  3/3 installing mia-audit"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

advisories:
	$(PYTHON) -m venv $(VENV)/advisories
	$(VENV)/advisories/bin/pip install --quiet --disable-pip-version-check pip-audit
	$(VENV)/advisories/bin/pip-audit --requirement $(LOCK) --no-deps --disable-pip --strict

dist:
	$(PYTHON) -m venv $(VENV)/dist
	$(VENV)/dist/bin/pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	$(VENV)/dist/bin/python -m build
	$(VENV)/dist/bin/twine check --strict dist/*

lock:
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install --quiet pip-tools
	$(VENV)/lock/bin/pip-compile --quiet --upgrade --extra test --extra docs --strip-extras --allow-unsafe --no-header --no-annotate \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file $(LOCK).new pyproject.toml
	sed -e 's/+cpu$$//' -e '1i # Made by `make lock` from pyproject.toml.' $(LOCK).new > $(LOCK)
	rm $(LOCK).new
	{ echo '# Made by `make lock`: the versions of requirements.lock, for conda.'; \
	  printf 'name: mia-audit\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n'; \
	  sed -e '/^#/d' -e '/^$$/d' $(LOCK) | sed 's/^/      - /'; \
	  sed -n 's/^version = "\(.*\)"$$/      - mia-audit==\1/p' pyproject.toml; } > envs/environment.yaml

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
