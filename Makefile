# make demo runs the main job, make test passes the tests; both set up what they need first.

PYTHON ?= python3
BIN := .venv/bin
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/whet
ENGINE := $(CACHE)/check-tokens
READERS := $(CACHE)/check-exports
SKILLOPT := $(CACHE)/check-skillopt
SERVE := $(CACHE)/check-serve
SERVE_CLIENTS := $(patsubst checks/openenv-%.txt,$(SERVE)/%/ready,$(wildcard checks/openenv-*.txt))
TRAINERS := $(CACHE)/check-trainers
TRAINER_NAMES := verifiers trl verl skyrl tinker
# Tests wait for boxes and servers half of their time, so there is work for more of them than there are cores.
WORKERS := $(shell expr 1 + $$(getconf _NPROCESSORS_ONLN))
PIP_QUIETLY := --quiet --disable-pip-version-check

.PHONY: demo test cover lint agents models browser check-deploy check-tokens check-exports check-mine check-runs check-sharpen check-serve check-skillopt check-sleep check-trainers prices bench-gate bench-gateway bench-gateway-instructions bench-rollout bench-serve bench-sleep bench-store bench-traces bench-view screenshots setup clean

demo: setup models
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo/demo.sh

test: setup lint agents models browser
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

cover: setup agents models browser
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

agents: setup
	@command -v npm >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq nodejs npm; \
	  else \
	    echo "the tests run real agents, which need npm; install it: sudo apt-get install nodejs npm" >&2; exit 1; \
	  fi; }
	@command -v ssh-keygen >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq openssh-client; \
	  else \
	    echo "signatures are not tested without ssh-keygen; install it: sudo apt-get install openssh-client" >&2; \
	  fi; }
	$(BIN)/whet agents install --all

models: setup
	$(BIN)/whet models pull smollm2

browser:
	@command -v chromium >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq chromium; \
	  else \
	    echo "the tests open pages in Chromium; install it: sudo apt-get install chromium" >&2; exit 1; \
	  fi; }

# The newest list prices. Look at the difference before you commit it.
prices: setup
	$(PYTHON) -m venv $(CACHE)/prices
	$(CACHE)/prices/bin/pip install $(PIP_QUIETLY) --upgrade genai-prices
	$(CACHE)/prices/bin/python checks/write_prices.py src/whet/gateway/prices.json

check-tokens: setup agents $(ENGINE)/ready
	PYTHONPATH=tests $(BIN)/python checks/tokens.py $(ENGINE)
	PYTHONPATH=tests $(BIN)/python checks/tokens_serve.py $(ENGINE)

check-deploy: setup
	$(BIN)/python checks/deploy.py

check-exports: setup agents $(READERS)/ready
	PYTHONPATH=tests $(BIN)/python checks/exports.py $(READERS)

check-mine: setup $(READERS)/ready
	PYTHONPATH=tests $(BIN)/python checks/mine.py $(CACHE)/check-mine $(READERS)

check-skillopt: setup $(SKILLOPT)/ready
	PYTHONPATH=tests $(BIN)/python checks/skillopt.py $(SKILLOPT)

check-serve: setup agents $(SERVE_CLIENTS)
	PYTHONPATH=tests $(BIN)/python checks/serve_openenv.py $(SERVE)
	PYTHONPATH=tests $(BIN)/python checks/serve_hostile.py

check-sleep: setup agents $(SKILLOPT)/ready
	PYTHONPATH=tests $(BIN)/python checks/sleep_secrets.py
	PYTHONPATH=tests $(BIN)/python checks/sleep_rules.py
	PYTHONPATH=tests $(BIN)/python checks/sleep_skillopt.py $(SKILLOPT)
	PYTHONPATH=tests $(BIN)/python checks/sleep_nights.py
	PYTHONPATH=tests $(BIN)/python checks/sleep_night.py

check-trainers: setup $(TRAINER_NAMES:%=$(TRAINERS)/%/ready)
	PYTHONPATH=tests:checks $(BIN)/python checks/trainers.py $(TRAINERS)

bench-gate: setup
	PYTHONPATH=tests $(BIN)/python benchmarks/gate.py

check-runs: setup
	PYTHONPATH=tests $(BIN)/python checks/runs.py

check-sharpen: setup agents
	PYTHONPATH=tests $(BIN)/python checks/sharpen.py

bench-gateway: setup
	PYTHONPATH=tests $(BIN)/python benchmarks/gateway.py

bench-gateway-instructions: setup
	PYTHONPATH=tests $(BIN)/python benchmarks/gateway_instructions.py

bench-rollout: setup
	PYTHONPATH=tests $(BIN)/python benchmarks/rollout.py

bench-sleep: setup
	$(BIN)/python benchmarks/sleep.py

bench-serve: setup
	$(BIN)/python benchmarks/serve.py

bench-store: setup
	PYTHONPATH=tests $(BIN)/python benchmarks/store.py

bench-traces: setup
	PYTHONPATH=tests $(BIN)/python benchmarks/traces.py

bench-view: setup browser
	PYTHONPATH=tests $(BIN)/python benchmarks/view.py

# The pictures of the documents, from runs with the scripted model.
screenshots: setup browser
	PYTHONPATH=tests $(BIN)/python docs/screenshots.py docs/img

setup: .venv/installed
	@command -v bwrap >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq bubblewrap; \
	  else \
	    echo "whet needs bubblewrap; install it: sudo apt-get install bubblewrap" >&2; exit 1; \
	  fi; }

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "whet needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { \
	  echo "Python's venv module is missing; install it: sudo apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# vLLM's own wheel for processors; torchvision and its like come in builds that do not fit its torch.
$(ENGINE)/ready: checks/engine.txt checks/engine_model.py | models
	$(PYTHON) -m venv $(ENGINE)
	$(ENGINE)/bin/pip install $(PIP_QUIETLY) --requirement checks/engine.txt
	$(ENGINE)/bin/pip uninstall $(PIP_QUIETLY) --yes torchvision torchaudio torchcodec
	HF_HUB_OFFLINE=1 TQDM_DISABLE=1 $(ENGINE)/bin/python checks/engine_model.py \
	  "$$($(BIN)/python -c 'from whet.models import find_pulled; print(find_pulled("smollm2").file)')" $(ENGINE)/model
	@touch $@

$(READERS)/ready: checks/readers.txt checks/readers-need.txt
	$(PYTHON) -m venv $(READERS)
	$(READERS)/bin/pip install $(PIP_QUIETLY) --requirement checks/readers-need.txt
	$(READERS)/bin/pip install $(PIP_QUIETLY) --no-deps --ignore-requires-python --requirement checks/readers.txt
	@touch $@

# Each release of OpenEnv's client has an environment of its own.
$(SERVE)/%/ready: checks/openenv-%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install $(PIP_QUIETLY) --requirement $<
	@touch $@

# Its mock world needs none of its dependencies.
$(SKILLOPT)/ready: checks/skillopt.txt | setup
	$(BIN)/pip install $(PIP_QUIETLY) --no-deps --upgrade --target $(SKILLOPT) --requirement checks/skillopt.txt
	@touch $@

# Each trainer in an environment of its own, with whet as its users install it. torch's build for processors is enough.
$(TRAINERS)/%/ready: checks/trainers-%.txt
	$(PYTHON) -m venv $(TRAINERS)/$*
	$(TRAINERS)/$*/bin/pip install $(PIP_QUIETLY) --requirement checks/trainers-$*.txt --editable '.[client]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
