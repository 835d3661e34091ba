# Every target sets up .venv by itself. Only Python 3.11 or newer, pip and make are needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
BUDGET ?= 45s

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test lint types imports unit

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## create .venv with the tested versions

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

quickstart: $(STAMP) ## train, certify and report a few methods on embedded data, in about five minutes
	@for method in aol cayley lot soc; do \
		$(BIN)/onelip train --method $$method --width 8 --dataset cifar10-mini --batch-size 64 --budget $(BUDGET) \
			--runs-dir runs || exit $$?; \
	done
	$(BIN)/onelip report runs

test: lint types imports unit ## everything that must pass before a commit lands

lint: $(STAMP) ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## pyright
	$(BIN)/pyright

imports: $(STAMP) ## import-linter: data flows one way
	$(BIN)/lint-imports

unit: $(STAMP) ## pytest with coverage, one worker per core
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --cov --cov-report=term
