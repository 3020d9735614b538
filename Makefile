# Everything runs in .venv, made from requirements.lock. Needed beforehand: make, Python >= 3.10, a package index.

VENV := .venv
BIN := $(VENV)/bin
# Further arguments for pytest: make test PYTEST_ARGS="-k join -x"
PYTEST_ARGS ?=
# Tests wait for servers more than they compute; more at once make small machines miss deadlines.
TEST_PROCESSES ?= 3
# make faults and make crash: how often; make faults: over how many days of flights.
RUNS ?= 5
# make fuzz: of all targets together.
SECONDS ?= 600
DAYS ?= 12

.DEFAULT_GOAL := help
.PHONY: help setup demo flights test test-fast faults crash test-compose test-deploy fuzz lint format lock docs pictures

help: ## Show what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: $(VENV)/.installed ## Make .venv with the locked versions (again only when the lock changed)

demo: setup ## Stream ten months of flights through all roles; prints the figures and writes an HTML report
	$(BIN)/stream-calib demo

flights: setup ## What the closed loop is worth on the flights, live through Kafka and Redis, an hour: make flights ARGS="--only defaults"
	$(BIN)/python -m benchmarks.flights $(ARGS)

test: setup lint ## Lint and all tests; starts the services that they need and ends them
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile $(PYTEST_ARGS)

test-fast: setup lint ## Lint and the tests that need no services, in under a minute
	$(BIN)/python -m pytest -m "not services and not deploy" -n auto $(PYTEST_ARGS)

faults: setup ## Processes and servers on a real Kafka die, hang and come back, at other places each time: make faults RUNS=20 DAYS=30
	@for run in $$(seq $(RUNS)); do \
		echo "run $$run of $(RUNS)" && FAULT_SEED=$$run FAULT_DAYS=$(DAYS) $(BIN)/python -m pytest \
			tests/integration/test_kafka_members.py tests/integration/test_kafka_faults.py \
			tests/integration/test_kafka_operators.py $(PYTEST_ARGS) || exit 1; \
	done

crash: setup ## The crash matrix, random faults and an oracle: make crash RUNS=300 SEED=7 CRASH_ARGS="--redis cluster", make crash SCRIPT=file
	$(BIN)/python -m tests.crash $(if $(SCRIPT),--script $(SCRIPT),--runs $(RUNS) $(if $(SEED),--seed $(SEED))) $(CRASH_ARGS)

test-compose: setup ## docker compose up for real, looked at, and down; brings an engine and base images where there are none
	$(BIN)/python -m pytest -m deploy -s $(PYTEST_ARGS) tests/compose

test-deploy: setup ## Helm chart, alert rules, units: by helm, promtool and systemd-analyze
	$(BIN)/python -m pytest -m deploy $(PYTEST_ARGS) tests/deploy

fuzz: setup ## Look for inputs that break a reader of bytes, by coverage: make fuzz SECONDS=600 (TARGETS="--target scores")
	$(BIN)/python -m pip install --disable-pip-version-check --quiet "atheris>=3.0"
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(TARGETS)

lint: setup ## ruff (rules and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

format: setup ## Format the code as lint wants it
	$(BIN)/ruff format .

lock: setup ## Renew requirements.lock for every supported Python
	$(BIN)/uv pip compile --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-annotate \
		--upgrade --extra dev --custom-compile-command "make lock" --quiet --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-annotate \
		--constraint requirements.lock --extra fast --extra otel --custom-compile-command "make lock" --quiet \
		--output-file deploy/requirements.lock pyproject.toml

docs: setup ## Write the pages that are made from the code
	$(BIN)/stream-calib config schema --markdown > docs/configuration.md
	$(BIN)/python -m stream_calib.metrics_reference > docs/metrics.md

pictures: setup ## Make the pictures of docs/calibration.md and of detectors, in less than a minute
	$(BIN)/python docs/pictures
	$(BIN)/python docs/pictures/detector_picture.py

# Two stamps: the dependencies (minutes) follow the lock, the project itself (seconds) follows its own metadata.
$(VENV)/.dependencies: requirements.lock
	@PYTHON="$(PYTHON)" sh .ci/make-venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.dependencies
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check --disable-pip-version-check
	@touch $@
