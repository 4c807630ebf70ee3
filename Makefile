# Everything a developer or a user runs. Needs Python 3.11+, pip and make; the rest goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

# These tests of the source itself are a part of `check`.
CHECKED := --ignore=tests/test_conventions.py --ignore=tests/test_promises.py

# The tests start the command some hundred times: it must not be compiled anew each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup test-tools serve chat doctor test test-fast check format bench bench-retrieval bench-timers bench-reminders bench-memory bench-data bench-context bench-stalled bench-telegram bench-calls training-data train-context e2e e2e-crash e2e-tool-crashes e2e-llm browser screenshots lock clean

help: ## show the commands
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## create .venv with what `serve` and `chat` need

$(VENV)/.installed: requirements.lock pyproject.toml
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the pinned dependencies (first time: about a minute)"
	@$(PIP) install --require-hashes --requirement requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	@echo "installing the development tools"
	@$(PIP) install --require-hashes --requirement requirements-dev.lock
	@touch $@

# What the tests need beside Python: Chromium, and the packages that package-lock.json files pin.
test-tools: $(VENV)/.installed-dev
	@$(BIN)/python tests/support/installing.py

serve: setup ## start the server and print its address
	@exec $(BIN)/rapport serve

chat: setup ## chat in the terminal
	@exec $(BIN)/rapport chat

doctor: setup ## say which model and database are in use and whether each works
	@exec $(BIN)/rapport doctor

test: test-tools ## the tests, end to end and crashes included (short)
	$(BIN)/pytest -n 4 --dist loadgroup $(CHECKED)

test-fast: $(VENV)/.installed-dev ## the part of `test` that needs no browser, no processes and no long waits
	$(BIN)/pytest -n 3 --dist loadgroup -m "not e2e and not browser and not slow" $(CHECKED)

check: $(VENV)/.installed-dev ## format, lint, types, layers, conventions
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports
	$(BIN)/pytest -q -p no:cacheprovider tests/test_conventions.py tests/test_promises.py

format: $(VENV)/.installed-dev ## rewrite the code as `check` wants it
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

bench: $(VENV)/.installed-dev ## what a turn costs beside a bare proxy, in one run
	$(BIN)/python -m bench.overhead

bench-retrieval: $(VENV)/.installed-dev ## how well and how fast notes are found (about seven minutes)
	$(BIN)/python -m bench.retrieval

bench-timers: $(VENV)/.installed-dev ## timers on time in crowds, through kill -9, among a million, in races (about twenty minutes)
	$(BIN)/python -m bench.timers

bench-reminders: $(VENV)/.installed-dev ## 100,000 reminders within a minute, through kill -9; turns among a million that wait (about ten minutes)
	$(BIN)/python -m bench.reminders

bench-memory: $(VENV)/.installed-dev ## how well follow-ups remember, beside answers (about a minute)
	$(BIN)/python -m bench.memory

bench-data:
	@$(PYTHON) -m bench.context.inputs bench

bench-context: bench-data $(VENV)/.installed-dev ## how well context is chosen in group chats, and what that costs (about forty minutes)
	@met=0; for part in quality growth "search --cost"; do $(BIN)/python -m bench.context.$$part || met=1; done; exit $$met

bench-telegram: $(VENV)/.installed-dev ## updates of Telegram three times each, through kill -9; their rate; in long chats (about five minutes)
	$(BIN)/python -m bench.telegram

bench-stalled: $(VENV)/.installed-dev ## 500 clients that stop reading: what they cost, and when they are gone (about two minutes)
	$(BIN)/python -m bench.stalled

bench-calls: $(VENV)/.installed-dev ## the model calls of a long conversation, and how much of each prompt a cache can use (about a minute)
	$(BIN)/python -m bench.model_calls

TRAINING := .venv-train

training-data:
	@$(PYTHON) -m bench.context.inputs train

# Order-only: the data is looked for before PyTorch is installed.
$(TRAINING)/.installed: requirements.lock | training-data
	@test -x $(TRAINING)/bin/python || $(PYTHON) -m venv $(TRAINING)
	@echo "installing PyTorch beside the pinned dependencies"
	@$(TRAINING)/bin/pip --disable-pip-version-check --quiet install --require-hashes --requirement requirements.lock
	@$(TRAINING)/bin/pip --disable-pip-version-check --quiet install torch==2.13.0
	@$(TRAINING)/bin/pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --editable .
	@touch $@

train-context: training-data $(TRAINING)/.installed ## train the scorer of group context and write its weights (about ten minutes)
	$(TRAINING)/bin/python -m bench.context.train

e2e: test-tools ## only the tests that start the real command
	$(BIN)/pytest -m e2e

e2e-crash: $(VENV)/.installed-dev ## 200 kill -9 cycles under load (long)
	RAPPORT_CRASH_CYCLES=200 $(BIN)/pytest -m e2e --timeout 7200 tests/e2e/test_crash.py

e2e-tool-crashes: $(VENV)/.installed-dev ## 120 kill -9 around tool calls with effects (about fifteen minutes)
	RAPPORT_TOOL_CRASHES=20 $(BIN)/pytest -m e2e --timeout 600 tests/e2e/test_tool_crashes.py

e2e-llm: $(VENV)/.installed-dev ## stories with a real small model, for reading (installs it; about fifteen minutes; ONLY=follow_ups for a part)
	nice -n 19 $(BIN)/pytest -q -s -p no:cacheprovider -o log_cli=false tests/e2e_llm/stories.py $(if $(ONLY),-k $(ONLY))

browser: test-tools ## only the tests that look at the page in a real browser
	$(BIN)/pytest -m browser -rP tests/browser

screenshots: test-tools ## take the pictures in docs/ anew
	@$(BIN)/python -m tests.browser.screenshots

lock: $(VENV)/.installed-dev ## compile the pinned dependencies again
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --no-header --output-file requirements.lock pyproject.toml --extra build --extra all
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --no-header --constraint requirements.lock --output-file requirements-dev.lock pyproject.toml --extra build --extra all --extra dev

clean: ## remove .venv, .venv-train and caches (not your data)
	rm -rf $(VENV) $(TRAINING) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
