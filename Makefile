# make demo runs the main job, make test passes the tests; both set up what they need first.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint agents models bench-gateway bench-rollout bench-store bench-traces setup clean

demo: setup
	@$(BIN)/whet tasks check examples/tasks
	@$(BIN)/whet run examples/tasks --agent loop --model scripted --samples 2

test: setup lint agents models
	$(BIN)/pytest -n auto --cov --cov-report=term

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
	$(BIN)/whet agents install --all

models: setup
	$(BIN)/whet models pull smollm2

bench-gateway: setup
	$(BIN)/python tests/bench/gateway.py

bench-rollout: setup
	$(BIN)/python tests/bench/rollout.py

bench-store: setup
	$(BIN)/python tests/bench/store.py

bench-traces: setup
	$(BIN)/python tests/bench/traces.py

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

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
