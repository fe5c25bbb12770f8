# Two commands do everything: `make demo` and `make test`. Each makes the environment that it
# needs, and needs nothing but Python 3.11 or newer with venv, and make.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The first of these that is new enough; `make PYTHON=/path/to/python3.12 test` takes another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { command -v $$python; break; }; done)

# Tests wait a lot: there are more processes than processors, but no more than brokers are good for.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); \
	[ "$$n" -lt 2 ] && echo 2 || echo 4)

VENV := .venv
BIN := $(VENV)/bin
# Tests of what stands around the modules that are compiled, and is Python in a wheel, too.
AROUND := admin/* stores/test_sqlalchemy* stores/test_store_commands* test_http_authoriser* \
	test_logrotate* test_notify* test_proxy_protocol* test_settings* test_tls*
SAY = @printf '\n== %s\n'
# What fails beside other tests is tried again, alone, and what fails there, once more. What passes
# then is a race, to be mended all the same: the output says which it was.
AGAIN = echo 'Failed beside others. Again, alone; what passes now is a race, to be mended:'; \
	retry() { $(BIN)/python $(1) -m pytest --last-failed --last-failed-no-failures none -v; }; \
	retry || retry

.PHONY: help demo test lint types ready frames rest tests compiled results campaign docs sbom \
	audit clean

help:
	@echo 'make demo    run the conformance suite on a broker; then a pipeline, from an application'
	@echo '             over the broker and Spark to a replica and an event store, and back'
	@echo 'make test    everything that has to pass: style, types, tests, compiled too, coverage'
	@echo 'make results run the conformance suite on all brokers that are here, and publish that'
	@echo 'make campaign'
	@echo '             a broker at work, and faults of all kinds: 1,000 runs, or what is left of them'
	@echo 'make docs    build the documentation as a site, in report/docs'
	@echo 'make sbom    write down what stompkit runs with (CycloneDX), in report/sbom.json'
	@echo 'make audit   look up known vulnerabilities of that'
	@echo 'make clean   remove what demo and test have made'
	@echo
	@echo 'Needs Python 3.11 or newer with venv; found: $(or $(PYTHON),none)'

demo: $(VENV)/.demo
	$(SAY) 'Conformance of a stompkit broker'
	$(BIN)/python -m stompkit.conformance --quiet-time 0.1 \
		--html report/conformance.html --json report/conformance.json
	$(SAY) 'A pipeline: an application, its replica and its past'
	$(BIN)/python examples/pipeline/story.py

test: $(VENV)/.dev
	@# Side by side what takes one processor each.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types ready frames
	@$(MAKE) --no-print-directory rest compiled
	$(SAY) 'All passed'

lint: $(VENV)/.dev
	$(SAY) 'Style'
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(SAY) 'Types'
	$(BIN)/mypy

# Made ahead, since a test that needs it would have to wait for it, beside others.
ready: $(VENV)/.dev
	$(SAY) 'What a wheel has compiled'
	@$(BIN)/python -m benchmarks._compiled 2>&1 || true

frames: $(VENV)/.dev
	$(SAY) 'Tests of frames, which cover all of it'
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest tests/frames
	$(BIN)/coverage report --include='stompkit/frames/*' --fail-under=100

rest: $(VENV)/.dev
	$(SAY) 'Tests'
	@# In their order: the fewest tests, which would come last, are those that take longest.
	$(BIN)/python -m pytest --ignore=tests/frames --numprocesses=$(WORKERS) \
		--dist=loadfile --no-loadscope-reorder $(PYTEST) \
		|| { $(call AGAIN); }

tests: frames rest

compiled: $(VENV)/.dev
	$(SAY) 'Tests of the broker with the modules that a wheel has compiled'
	@# -P, since the checkout would be first on the path, and is not compiled.
	tree="$$($(BIN)/python -m benchmarks._compiled)" || { \
		[ "$${STOMPKIT_MQ_MISSING:-}" != fail ] && echo 'skipped: it needs a C compiler' && exit; }; \
	export PYTHONPATH="$$tree:$(CURDIR)"; \
	$(BIN)/python -P -c 'import stompkit; assert stompkit.is_compiled()'; \
	$(BIN)/python -P -m pytest -m 'not pure' --numprocesses=$(WORKERS) --dist=loadfile \
		$(patsubst %,'--ignore-glob=*/tests/server/%',$(AROUND)) tests/frames tests/server $(PYTEST) \
		|| { $(call AGAIN,-P); }

results: $(VENV)/.dev
	$(SAY) 'Results of the conformance suite'
	$(BIN)/python docs/make_results.py --run

campaign: $(VENV)/.dev
	$(SAY) 'A campaign of faults'
	$(BIN)/python -m tests.campaign $(CAMPAIGN)

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
	$(SAY) 'Making a Python environment in $(VENV)'
	@if [ -z '$(PYTHON)' ]; then \
		echo 'stompkit needs Python 3.11 or newer, and none was found.'; \
		echo 'On Debian or Ubuntu: apt-get install python3 python3-venv'; \
		echo 'Somewhere else:      make PYTHON=/path/to/python3 $(MAKECMDGOALS)'; exit 1; fi
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo '$(PYTHON) has no venv module.'; \
		echo 'On Debian or Ubuntu: apt-get install python3-venv'; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: setup.cfg | $(VENV)/bin/python
	$(SAY) 'Installing stompkit'
	$(BIN)/python -m pip install --quiet --editable '.[conformance,spark,java]'
	@touch $@

$(VENV)/.dev: setup.cfg | $(VENV)/bin/python
	$(SAY) 'Installing stompkit and what its tests need'
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) report build dist .tox .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
