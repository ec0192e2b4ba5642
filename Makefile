# Every target works from a fresh checkout: those that need the environment set it up first.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long kills check check-console bench format lock docs clean

BIN := .venv/bin
# Spark starts its Python workers with this one, not with whatever `python3` happens to be on the PATH.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Further options for pytest or the benchmarks, such as ARGS="tests/spec -k duration".
ARGS ?=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything into .venv; quick when nothing has changed
	@command -v python3 >/dev/null || { echo "python3 was not found; install Python 3.11 or newer" >&2; exit 1; }
	@python3 scripts/setup.py

# The shell must outlive a Ctrl-C, as the demo has to end what it has started.
demo: setup ## Start a server with three live pipelines; Ctrl-C ends all of it
	@trap : INT; $(BIN)/python scripts/demo.py

# All tests take two processes, each with a Spark of its own: a third would only wait for the others on two cores.
test: setup ## Run the tests; ARGS="tests/spec -k duration" picks some
	$(BIN)/python -m pytest $(if $(ARGS),,-n 2 --dist worksteal) $(ARGS)

test-long: setup ## Run the tests that take minutes
	$(if $(ARGS),,PENSTOCK_CASES=20 $(BIN)/python -m pytest tests/kernels --timeout 3600)
	$(BIN)/python -m pytest -m long --timeout 3600 $(ARGS)

# The file is made anew, so that it tells of one run of these tests over the code as it is.
kills: setup ## Kill pipelines for an hour or so, and write what they survived into the docs
	rm -f docs/exactly-once-results.json
	PENSTOCK_KILLS=$(CURDIR)/docs/exactly-once-results.json $(BIN)/python -m pytest tests/faults/test_kill.py \
		-m "" --timeout 3600 -k "not each_sink_alone" $(ARGS)
	$(BIN)/python -m penstock.docs

check: setup check-console ## Check format, lint, types, layers and generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m penstock.docs --check

# Without Node there is no console to check, but where the checks count there must be.
check-console: setup
	@if [ -d console/node_modules ]; then npm --prefix console run --silent check; \
	else echo "the console was not checked: it was not built, as setup says above; it takes Node 20.19 or newer" >&2; test -z "$$CI"; fi

bench: setup ## Run the benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

format: setup ## Format the code and fix what can be fixed by itself
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lock: setup ## Write requirements.lock anew from pyproject.toml; ARGS=--upgrade takes newer versions
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --quiet --python-version 3.11 \
		--group dev --output-file requirements.lock $(ARGS) pyproject.toml

docs: setup ## Write the generated reference anew
	$(BIN)/python -m penstock.docs

clean: ## Remove caches, builds and the demo's state; .venv stays
	rm -rf .penstock examples/.penstock examples/out out artifacts dist build src/penstock/control/console_dist
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find src tests scripts benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
