# Two commands do everything: `make demo` and `make test`. Each makes the environment that it
# needs, and needs nothing but Python 3.11 or newer with venv, and make.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The first of these that is new enough; `make PYTHON=/path/to/python3.12 test` takes another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { command -v $$python; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
# The day of the year, by which parts of the matrix lane take turns.
TURN ?= $(shell date +%-j)
SAY = @printf '\n== %s\n'
, := ,
# Install this package with extras, and print a dot for each line of pip's output. PySpark has no
# pyproject.toml: older versions of pip warn of it without --use-pep517.
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --use-pep517 --editable '$(1)' \
	| while read -r line; do printf .; done; echo

.PHONY: help demo demo-spark test test-all test-turn lint types compiled results campaign servers \
	docs sbom audit clean

help:
	@echo 'make demo    the first minute: a broker with its console, the conformance suite, and a'
	@echo '             database that is replicated through the broker'
	@echo 'make demo-spark'
	@echo '             a pipeline on Spark, from an application to a replica and an event store'
	@echo 'make test    everything that has to pass: style, types, tests, compiled too, coverage'
	@echo '             (SUITE=--help prints how to run a part of it; SERVERS=newest runs it on'
	@echo '             the databases that make servers has fetched)'
	@echo 'make test-all'
	@echo '             the same, and other brokers and versions, long kills, a short campaign'
	@echo 'make test-turn'
	@echo '             of what test-all adds, the parts whose turn it is today'
	@echo 'make results run the conformance suite on all brokers that are here, and publish that'
	@echo 'make campaign'
	@echo '             a broker at work, and faults of all kinds: 1,000 runs, or what is left of them'
	@echo 'make servers fetch servers of today for the tests: all, or SERVERS="artemis rabbitmq-4"'
	@echo 'make docs    build the documentation as a site, in report/docs'
	@echo 'make sbom    write down what stompkit runs with (CycloneDX), in report/sbom.json'
	@echo 'make audit   look up known vulnerabilities of that'
	@echo 'make clean   remove what demo and test have made'
	@echo
	@echo 'Needs Python 3.11 or newer with venv; found: $(or $(PYTHON),none)'

demo: $(VENV)/.demo
	@$(BIN)/python examples/demo.py

demo-spark: $(VENV)/.demo-spark
	$(SAY) 'A pipeline: an application, its replica and its past'
	@$(BIN)/python examples/pipeline/story.py

test: $(VENV)/.dev
	@$(BIN)/python -m tests.suite $(if $(SERVERS),--servers '$(SERVERS)') $(SUITE)

test-all: $(VENV)/.dev
	@$(BIN)/python -m tests.suite --lane all $(SUITE)

test-turn: $(VENV)/.dev
	@$(BIN)/python -m tests.suite --lane matrix --turn $(TURN) $(SUITE)

lint: $(VENV)/.dev
	@$(BIN)/python -m tests.suite --only style

types: $(VENV)/.dev
	@$(BIN)/python -m tests.suite --only types

compiled: $(VENV)/.dev
	@$(BIN)/python -m tests.suite --only compiled

results: $(VENV)/.dev
	$(SAY) 'Results of the conformance suite'
	$(BIN)/python docs/make_results.py --run
	$(BIN)/python -m docs.make_matrix_picture

campaign: $(VENV)/.dev
	$(SAY) 'A campaign of faults'
	$(BIN)/python -m tests.campaign $(CAMPAIGN)

servers: $(VENV)/.dev
	$(SAY) 'Servers of today'
	@$(BIN)/python -m tests.fetch_servers $(SERVERS)

docs: $(VENV)/.dev
	$(SAY) 'The documentation, in report/docs'
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d report/docs.trees docs report/docs

sbom: $(VENV)/.dev
	$(SAY) 'What stompkit runs with'
	$(BIN)/python packaging/make_sbom.py report/sbom.json

audit: sbom
	$(SAY) 'Known vulnerabilities'
	$(BIN)/python packaging/audit.py report/sbom.json

$(VENV)/bin/python:
	@[ -n '$(PYTHON)' ] || { \
		echo 'stompkit needs Python 3.11 or newer: install it (python3 and python3-venv on' \
			'Debian), or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)'; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo '$(PYTHON) has no venv module: install it (python3-venv on Debian)'; exit 1; }
	$(SAY) 'Making a Python environment in $(VENV)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: setup.cfg | $(VENV)/bin/python
	$(SAY) 'Installing stompkit; a dot is a step of pip, about a hundred in all'
	@$(call INSTALL,.[conformance$(,)admin$(,)replication])
	@touch $@

$(VENV)/.demo-spark: setup.cfg | $(VENV)/bin/python
	$(SAY) 'Installing stompkit with Spark and a Java (400 MB); a dot is a step of pip'
	@$(call INSTALL,.[conformance$(,)spark$(,)java])
	@touch $@

$(VENV)/.dev: setup.cfg | $(VENV)/bin/python
	$(SAY) 'Installing stompkit and what its tests need'
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) report build dist .tox .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
