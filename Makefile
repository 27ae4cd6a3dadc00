# make audit    set up what is missing, run config/digits.yaml (or CONFIG=…) and say where the report is
# make test     set up what is missing, run all checks and tests
# make reproduce SCORES=DIR   print the paper's Table 3 beside what its published score matrices in DIR say
# make lock     renew envs/ from pyproject.toml
PYTHON ?= python3
CONFIG ?= config/digits.yaml
CORES ?= all

VENV := .venv
READY := $(VENV)/ready
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
LOCK := envs/requirements.lock

.PHONY: audit test check reproduce lock clean

audit: $(READY)
	@snakemake --cores $(CORES) --configfile $(CONFIG)

test: check
	@python tests/slurm/cluster.py check
	pytest -n 2 --dist loadgroup

check: $(READY)
	ruff check src tests benchmarks
	ruff format --check src tests benchmarks
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

reproduce: $(READY)
	@test -n "$(SCORES)" || { echo "make reproduce: say where the published score matrices are: make reproduce SCORES=DIR" >&2; exit 2; }
	mia-audit reproduce $(SCORES) --out results/reproduction

$(READY): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("mia-audit needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + "; give another one: make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) from $(LOCK); this is done once"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(LOCK)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

lock:
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install --quiet pip-tools
	$(VENV)/lock/bin/pip-compile --quiet --upgrade --extra test --strip-extras --allow-unsafe --no-header --no-annotate \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file $(LOCK).new pyproject.toml
	sed -e 's/+cpu$$//' -e '1i # Made by `make lock` from pyproject.toml.' $(LOCK).new > $(LOCK)
	rm $(LOCK).new
	{ echo '# Made by `make lock`: the versions of requirements.lock, for conda.'; \
	  printf 'name: mia-audit\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n'; \
	  sed -e '/^#/d' -e '/^$$/d' $(LOCK) | sed 's/^/      - /'; } > envs/environment.yaml

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
