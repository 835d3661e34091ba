# Every target sets up .venv by itself. Only Python 3.11 or newer, pip and make are needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
OUT ?= study
ACCELERATOR_ENV ?= build/accelerator

.DEFAULT_GOAL := help
.PHONY: help setup compare measure docs site notebooks test test-all test-peers test-accelerator test-gpu lint types imports unit coverage fuzz

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## create .venv with the tested versions

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

compare: $(STAMP) ## compare all main methods on embedded data: trained, certified, reported in under six minutes
	$(BIN)/onelip compare --out $(OUT)

measure: $(STAMP) ## time of every method against plain convolutions, on an otherwise idle machine
	$(BIN)/onelip measure time

docs: $(STAMP) ## build the documentation site and show it on localhost
	$(BIN)/python docs/site/make_site.py --serve

site: $(STAMP) ## build the documentation site in build/site, warnings as errors
	$(BIN)/python docs/site/make_site.py

notebooks: $(STAMP) ## the tutorial and other pages as Jupyter notebooks, in build/notebooks
	$(BIN)/python docs/site/notebooks.py

test: lint types imports unit ## everything that must pass before a commit lands

lint: $(STAMP) ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## pyright
	$(BIN)/pyright

imports: $(STAMP) ## import-linter: data flows one way
	$(BIN)/lint-imports

unit: $(STAMP) ## pytest in random order, one worker per core
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m "not slow"

coverage: $(STAMP) ## the same, and which lines no test runs
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m "not slow" --cov --cov-report=term

fuzz: $(STAMP) ## 2,000 malformed inputs and 43 attacks on every command that reads files: none may crash, hang or fool it
	cd tests && OMP_NUM_THREADS=1 PYTHONPATH=. ../$(BIN)/python -m hostile.corpus --cases 2000 --seed $(or $(SEED),0)

test-all: lint types imports $(STAMP) ## make test, and the tests that train every method
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

test-peers: $(STAMP) ## install the layers of other packages (extra peers), and run the tests that need them
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[peers]'
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/bench/measurement/test_peers.py

# XLA keeps 2,048 compiled programs by itself, which take more memory maps than Linux gives a process.
test-accelerator: $(ACCELERATOR_ENV)/.installed ## every method on a second device: XLA's own CPU client, set up in build/accelerator (several GB)
	PJRT_DEVICE=CPU TEST_DEVICE=xla XLA_COMPILATION_CACHE_SIZE=32 $(ACCELERATOR_ENV)/bin/python -m pytest -s tests/accelerator

$(ACCELERATOR_ENV)/.installed:
	$(PYTHON) -m venv $(ACCELERATOR_ENV)
	$(ACCELERATOR_ENV)/bin/pip install --quiet torch==2.9.0 torch_xla==2.9.0 pytest hypothesis
	$(ACCELERATOR_ENV)/bin/pip install --quiet --editable '.[bench]'
	touch $@

test-gpu: $(STAMP) ## with a CUDA card: tests of what people do with one, and a report in gpu.json and gpu.md
	@if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
		mkdir -p build; \
		TEST_DEVICE=cuda $(BIN)/pytest -s tests/accelerator --junitxml=build/test-gpu.xml; code=$$?; \
		$(BIN)/onelip doctor --device cuda --tests build/test-gpu.xml --report gpu.json && exit $$code; \
	else echo "torch finds no CUDA device here: nothing was run"; fi
