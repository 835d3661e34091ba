# Every target sets up .venv by itself. Only Python 3.11 or newer, pip and make are needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup test lint types imports unit

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## create .venv with the tested versions

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

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
