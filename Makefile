# make book, make test, make check, make notebooks and the others: each makes the environment in .venv first if it must.

ifeq ($(origin PYTHON),undefined)
PYTHON := $(or $(shell command -v python3.11),$(shell command -v python3))
endif
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BUILD := $(BIN)/python -m proofbook.build
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# What a notebook shows must not depend on the user's own IPython settings.
export IPYTHONDIR := $(CURDIR)/_build/ipython
export JUPYTER_PREFER_ENV_PATH := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1
export PYTHONNOUSERSITE := 1

.PHONY: book test test-science test-proofbook check linkcheck notebooks benchmarks lint environment clean distclean

book: $(READY)
	@$(BUILD) book

# Strict nbval runs every chapter again, and our plugin compares what it leaves out: all that a
# chapter shows with all that is stored.
NBVAL := -n auto --dist loadfile -p proofbook.build.nbval_plugin --nbval

test: book
	@$(BIN)/python -m pytest $(NBVAL) --doctest-modules tests src $$($(BUILD) list)

# The science alone, in minutes: what a change to the accounting or the replay must pass first.
SCIENCE := $(addprefix src/kvledger/,core traces models accounting replays)
test-science: $(READY)
	@$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow" --doctest-modules tests/science $(SCIENCE)

# The executable book as such, where kvledger cannot be imported.
test-proofbook: $(READY)
	@$(BIN)/python -c "import sys; sys.modules['kvledger'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))" \
		-m "not slow" tests/proofbook

# The chapters alone, and what passed is written down in chapters/checks.json.
check: $(READY)
	@$(BIN)/python -m pytest $(NBVAL) --record-checks $$($(BUILD) list)

# Asks the network, which nothing else here does.
linkcheck: $(READY)
	@$(BUILD) linkcheck

notebooks: $(READY)
	@$(BUILD) notebooks

benchmarks: $(READY)
	@$(BIN)/python benchmarks/run.py --book --replay --loading --commands

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

environment: $(READY)

# The file that says the environment is whole comes last, so a broken installation is made again.
$(READY): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "no python3.11 or python3 found; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5))' || \
		{ echo "$(PYTHON) is older than Python 3.11.5, which the pinned packages need; set PYTHON=..." >&2; exit 1; }
	@echo "making the environment in $(VENV) with $(PYTHON): some minutes, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -r requirements.txt
	@$(PIP) install --no-deps -e .
	@touch $@

clean:
	@rm -rf _build

distclean: clean
	@rm -rf $(VENV) $(PEERS)

# The engines that judge the replay, live. Their packages stay apart from the book's: 3 GB.
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready
PEERS_PIP := $(PEERS)/bin/python -m pip --disable-pip-version-check --quiet
VLLM := 0.33.0

.PHONY: test-peers

test-peers: $(READY) $(PEERS_READY)
	@$(PEERS)/bin/python tests/peers/record_vllm.py --check \
		$(if $(KVLEDGER_RAW_TRACES),--raw "$(KVLEDGER_RAW_TRACES)")
	@$(BIN)/python -m pytest tests/science/test_peers.py

# vLLM's own list of dependencies asks for CUDA; what its block manager imports is listed here.
$(PEERS_READY): tests/peers/requirements.txt
	@echo "making the environment of the peers in $(PEERS) with $(PYTHON): some minutes, once"
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS_PIP) install -r tests/peers/requirements.txt
	@$(PEERS_PIP) install --no-deps vllm==$(VLLM)
	@touch $@
