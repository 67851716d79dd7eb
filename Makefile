# Ringleader. `make demo` and `make test` do all the set-up they need; `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
# Each interpreter has an environment of its own: `make test PYTHON=python3.12` leaves .venv alone.
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
ARGS ?=
VERSION ?= 1.36
SCENARIO ?= steady

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-broken test test-long check test-real test-cluster lint format bench bench-ring bench-client bench-embedded bench-sharder bench-runtime bench-store bench-members bench-neighbour bench-forged loadtest failover endurance chaos unmodified rollouts model mutants sim fuzz wheel-test release helm image site lock clean bench-guard bench-priority bench-proxy bench-unmodified autoscale

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## install the pinned dependencies into .venv

$(STAMP): requirements.lock pyproject.toml scripts/setup
	@PYTHON="$(PYTHON)" VENV="$(VENV)" scripts/setup

demo: setup ## a fleet shares 2,000 objects while replicas die, freeze, join and roll (ARGS=--real: real servers, ARGS=--unmodified: kube-controller-managers)
	@$(BIN)/ringleader demo $(ARGS)

demo-broken: setup ## the same with the fence switched off: must exit 1 and name an object
	@$(BIN)/ringleader demo --no-fence $(ARGS)

test: setup ## lint, unit, property, fleet and integration tests (PYTHON=python3.12: on another interpreter)
	@VENV="$(VENV)" scripts/test $(ARGS)

check: setup ## the everyday loop: lint, and the tests that need no server and start no process
	@VENV="$(VENV)" scripts/test --unit

test-long: setup ## the long runs: every scenario of the load test, benchmarks, demos, nights on call
	@VENV="$(VENV)" scripts/test --long

test-real: setup ## the tests on kube-apiserver VERSION=1.34, 1.35 or 1.36, built once into your cache
	@VENV="$(VENV)" scripts/test-real "$(VERSION)" $(ARGS)

test-cluster: setup ## pods on real nodes: the chart, its fleet and what breaks it; needs root on Linux, about ten minutes
	@VENV="$(VENV)" scripts/test-cluster $(ARGS)

lint: setup ## ruff, mypy strict, import-linter
	@VENV="$(VENV)" scripts/lint

format: setup ## rewrite the code in the project's format
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: bench-ring bench-client bench-embedded bench-store ## the four small benchmarks, on pyperf (ARGS=--fast for a trial)

bench-ring: setup ## ring against a plain ring and its best-kept peer
	@$(BIN)/python -m benchmarks.ring $(ARGS)

bench-client: setup ## our HTTP connection against aiohttp, PATCHes per second of a core
	@$(BIN)/python -m benchmarks.client $(ARGS)

bench-embedded: setup ## PATCHes per second and memory of the control plane in memory
	@$(BIN)/python -m benchmarks.embedded $(ARGS)

bench-store: setup ## memory and time of each form in which a replica's cache keeps objects
	@$(BIN)/python -m benchmarks.store $(ARGS)

bench-sharder: setup ## the sharder at 100,000 objects beside what a real API server can take: 20 minutes, needs wrk
	@$(BIN)/python -m benchmarks.sharder $(ARGS)

bench-neighbour: setup ## what other clients of the API server feel beside the sharder in each pace, and beside wrk: 12 minutes, needs wrk
	@$(BIN)/python -m benchmarks.neighbour $(ARGS)

bench-members: setup ## the sharder beside 1,000 members that renew, on a real API server: 4 minutes
	@$(BIN)/python -m benchmarks.members $(ARGS)

bench-guard: setup ## the API server's CPU time of a label patch, a Lease renewal and an edit, without and under the guard
	@$(BIN)/python -m benchmarks.guard $(ARGS)

bench-priority: setup ## what the chart's priority levels do for others, on a real API server with few seats: 5 minutes
	@$(BIN)/python -m benchmarks.priority $(ARGS)

bench-proxy: setup ## CPU time of watches and writes through the proxy's relay, and without it, on a real API server: 2 minutes
	@$(BIN)/python -m benchmarks.proxy $(ARGS)

bench-unmodified: setup ## a controller in Go at 100,000 objects, alone and as three replicas behind proxies: 10 minutes, needs Go
	@$(BIN)/python -m benchmarks.unmodified $(ARGS)

bench-runtime: setup ## the runtime at 100,000 objects beside kopf, the kubernetes package and controller-runtime: 40 minutes, needs wrk
	@$(BIN)/python -m benchmarks.runtime $(ARGS)

bench-forged: setup ## honest objects beside 16,000 forged labels and 270 new ones a second, on a real API server: 5 minutes
	@$(BIN)/python -m benchmarks.forged $(ARGS)

loadtest: setup ## one minute of load on an own fleet (SCENARIO=join, ARGS="--plane real --objects 100000")
	@$(BIN)/ringleader loadtest $(SCENARIO) $(ARGS)

autoscale: setup ## autoscaling policies compared over two simulated days: moves, replica hours, slow minutes
	@$(BIN)/python -m loadtest.autoscale

failover: setup ## the leading sharder dies and freezes in mid-rebalance of 20,000 objects; all are away for ten minutes
	@RINGLEADER_FAILOVER_OBJECTS=20000 $(BIN)/python -m pytest -q tests/sharder/io/test_sharder_failover.py
	@RINGLEADER_AWAY_S=600 $(BIN)/python -m pytest -q -k embedded tests/fleet/test_fleet_without_sharder.py

endurance: setup ## a replica sees 100,000 changes: its memory stays what it was (minutes)
	@RINGLEADER_CHANGES=100000 $(BIN)/python -m pytest -q -s --timeout 900 tests/shard_controller/test_shard_memory.py

chaos: setup ## random faults on fleets on two kube-apiservers and etcd, judged by three checks (MINUTES=60 SEED=1)
	@$(BIN)/python -m tests.fleet.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

unmodified: setup ## random faults on unmodified kube-controller-managers behind proxies, judged pod by pod (MINUTES=30 SEED=1)
	@$(BIN)/python -m tests.fleet.unmodified $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

rollouts: setup ## Argo Rollouts' own controllers behind proxies roll 40 Rollouts: a minute, and six for the first build
	@$(BIN)/python -m tests.proxy.argo_rollouts
	@$(BIN)/python -m pytest -q tests/proxy/test_proxy_rollouts_on_real.py $(ARGS)

model: setup ## every order of events of the protocol's model, to the end (long; ARGS=--write for the docs)
	@$(BIN)/python -m tests.sharder.model $(ARGS)

sim: setup ## fleets on virtual time, driven by seeds and judged at each step (SEED=7: one; ARGS="--seeds 2000 --coverage")
	@$(BIN)/python -m simulation $(if $(SEED),--seed $(SEED)) $(ARGS)

mutants: setup ## break each protocol rule in a copy: the named test must turn red
	@$(BIN)/python scripts/mutants.py $(ARGS)

fuzz: setup ## strange objects and Leases at random into all that reads them: ten minutes (atheris too, where it is installed)
	@RINGLEADER_FUZZ=5000 $(BIN)/python -m pytest -q --timeout 600 tests/fuzz $(ARGS)
	@PYTHONPATH=. $(BIN)/python scripts/fuzz.py

release: setup ## every artifact of a release in dist/, equal bytes for one commit (VERSION=0.1.0 as in pyproject.toml)
	@$(BIN)/python scripts/release.py "$(VERSION)" $(ARGS)

helm: setup ## build the pinned Helm once into your cache, for make release and the chart's tests
	@$(BIN)/python -m devcluster.real build helm

image: setup ## the container image as an OCI layout in dist/image, without a container engine
	@$(BIN)/python -m devcluster.image dist/image $(ARGS)

site: setup ## the documentation as a site with search, in dist/site
	@$(BIN)/python scripts/site.py $(ARGS)

wheel-test: setup ## the wheel in a fresh environment runs the quick start
	@VENV="$(VENV)" scripts/wheel-test

lock: setup ## pin the newest versions that pyproject.toml allows
	@$(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip compile -q pyproject.toml --extra dev --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements.lock

clean: ## remove everything that make built inside this folder
	@rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
