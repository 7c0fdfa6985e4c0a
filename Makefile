# A newcomer needs two commands: make demo, make test. Both set everything up first (a local .venv, Python 3.10).
# `make test PYTHON=python3.12` (or a path) does the same without Lava, in an environment of its own: .venv-3.12.

VERSION := $(shell bash .ci/setup version "$(PYTHON)")
ifeq ($(VERSION),)
$(error which Python? (see above))
endif
NEWER  := $(filter-out 3.10,$(VERSION))
VENV   := .venv$(addprefix -,$(NEWER))
PYTHON_IN_VENV := $(VENV)/bin/python
STAMP  := $(VENV)/.asp-neuro-installed
# pytest workers; each keeps to one thread, so that 2 cores are used and not fought over
JOBS   ?= 2
PYTEST := OMP_NUM_THREADS=1 $(PYTHON_IN_VENV) -m pytest -n $(JOBS)

# Where data sets are looked for before ./data; a folder that does not exist is passed over.
ASP_NEURO_DATA ?= $(CURDIR)/../shared/data
export ASP_NEURO_DATA

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick lint format soak bench reports clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install everything (quick when nothing changed); PYTHON=python3.12 for another
	@echo "ready: $(VENV) (try: $(VENV)/bin/asp-neuro --help)"

# The stamp holds the folder it was made in: a copied or moved tree has a .venv that points elsewhere, and is set up again.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif
$(STAMP): pyproject.toml constraints.txt constraints-3.12.txt .ci/setup $(wildcard setup.py asp_neuro/compiled/*.[ch])
	@bash .ci/setup $(VENV) $(VERSION)
	@printf '%s\n' "$(CURDIR)" > $(STAMP)

demo: $(STAMP) ## run the main job on the built-in shapes
	@$(PYTHON_IN_VENV) -m asp_neuro demo

# Linting asks nothing of the Python that runs it, and its tools are in .venv: once is enough.
test: $(if $(NEWER),$(STAMP),lint) ## lint, then every test (at most 20 minutes on 2 cores); PYTHON=python3.12: all but Lava
	$(PYTEST) -m "not soak"

quick: $(STAMP) ## the fast tests only (at most 3 minutes)
	$(PYTEST) -m "not slow and not soak"

lint: $(STAMP) ## ruff, format check, mypy on the pure modules, import contracts
	$(PYTHON_IN_VENV) -m ruff check .
	$(PYTHON_IN_VENV) -m ruff format --check .
	$(PYTHON_IN_VENV) -m mypy
	$(VENV)/bin/lint-imports --no-logo

format: $(STAMP) ## let ruff mend and format what it can
	$(PYTHON_IN_VENV) -m ruff check --fix .
	$(PYTHON_IN_VENV) -m ruff format .

# pytest says 5 when it found nothing to run
soak: $(STAMP) ## the long campaigns (marked soak)
	@$(PYTEST) -m soak; code=$$?; if [ $$code -eq 5 ]; then echo "no test is marked soak yet"; else exit $$code; fi

bench: $(STAMP) ## every benchmark, results.json, picture and table (at most 15 minutes)
	$(PYTHON_IN_VENV) benchmarks/run_all.py $(BENCH)

# Every shipped bundle on its test split (or SPLIT=validation); a report takes one to six minutes of a core, less with LIMIT=200.
SPLIT ?= test
reports: $(STAMP) ## reports/NAME.html for each shipped bundle, to open in a browser (SPLIT=validation, LIMIT=200)
	@mkdir -p reports
	@for name in $$($(PYTHON_IN_VENV) -m asp_neuro models --json | $(PYTHON_IN_VENV) -c "import json, sys; print(*(m['name'] for m in json.load(sys.stdin)['models']))"); do \
	  echo "reports/$$name.html"; $(PYTHON_IN_VENV) -m asp_neuro report $$name --split $(SPLIT) $(addprefix --limit ,$(LIMIT)) --out reports/$$name.html || exit 1; done

clean: ## remove caches and build products (.venv stays; make distclean removes it, and .venv-3.12)
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache demo-out reports
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## clean, and remove every .venv
	rm -rf .venv .venv-*
