# The one door. Everything a target needs beyond Rust, cc, Python 3, git and make it installs itself, or names.
SHELL := /bin/bash
.DELETE_ON_ERROR:

CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := .local/tools/bin/cargo-deny
export RUST_BACKTRACE ?= 0

.PHONY: help demo map page map-test bench-map test faults bench bench-full bench-micro bench-sql fuzz check up down day setup fmt clippy deny figures figures-check front-test answers-test manifests kubernetes replicas clean-state

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: setup ## broker, ClickHouse, milepost and a fleet on free ports; a table and a picture; leaves nothing running
	cargo build --release --locked --workspace
	target/release/loadgen demo --milepost target/release/milepost

map: setup page ## the same parts, a fleet with an hour behind it, and the live map of it; prints the address; until Ctrl-C
	cargo build --release --locked -p milepost -p milepost-map -p loadgen
	target/release/loadgen map

test: setup page front-test answers-test map-test ## every test but the long faults
	cargo test --locked --workspace
	cargo build --locked --workspace
	target/debug/lab faults --quick --milepost target/debug/milepost

faults: ## the whole fault harness, half an hour; then the mistakes it must find, ten minutes
	deploy/local/setup --faults
	cargo build --release --locked --workspace
	target/release/lab faults
	target/release/lab faults --prove

kubernetes: ## the manifests on a real control plane, with pods as processes; twelve minutes, and the first time twenty more to build it
	deploy/local/setup --dev
	deploy/kubernetes/tools
	deploy/kubernetes/crds
	lab/kubernetes/build
	cargo build --release --locked -p milepost -p loadgen -p strict-broker
	$${VENV_DIR:-.local/venv}/bin/python lab/kubernetes/run.py $(ARGS)
	$${VENV_DIR:-.local/venv}/bin/python -m pytest -q -p no:cacheprovider lab/kubernetes

replicas: setup ## milepost on replicas that are killed, cut off and turned from: in containers, or with ARGS='--replica URL …' on your own (lab replicas --help)
	cargo build --release --locked -p milepost -p loadgen -p lab
	$(if $(ARGS),target/release/lab replicas $(ARGS),lab/replicas/run)

bench-micro: ## what a message, a batch and a spool file cost; instructions a message need valgrind
	cargo bench --locked --bench micro
	cargo bench --locked --bench instructions

bench-map: ## the live map with a million drivers: first picture, a second's update, memory, beside JSON rows; about four minutes
	deploy/local/setup --dev
	cargo build --release --locked -p milepost -p milepost-map
	$${VENV_DIR:-.local/venv}/bin/python lab/bench-map/bench_map.py
	deploy/local/setup --map
	deploy/local/npm --prefix map/page run frames

fuzz: ## a million inputs for each parser of foreign bytes and each format's decoder; ten minutes
	fuzz/run

bench: setup ## milepost beside Node, Bun and the floor; about nine minutes after the build; bench-results/latest.html
	cargo build --release --locked --workspace
	target/release/lab bench

bench-full: setup ## the same with Telegraf and Bento, more rates, members, limits, ceilings, fleet sizes, memory's slope; an hour and a quarter
	cargo build --release --locked --workspace
	target/release/lab bench --full

bench-sql: ## analysts' questions and inserts, beside the obvious schema with FINAL and yesterday's layout; ARGS='--millions 40': more fixes
	deploy/local/setup --dev
	cargo build --locked --bin milepost
	$${VENV_DIR:-.local/venv}/bin/python lab/bench-sql/bench_sql.py $(ARGS)

figures: ## draw README's pictures anew from docs/results.md
	python3 docs/figures/draw.py

figures-check: ## they are what docs/results.md says
	python3 docs/figures/draw.py --check

check: fmt clippy deny figures-check manifests test ## what CI runs

manifests: ## deploy/kubernetes, deploy/helm, alerts, compose, workflows, each against its schema or judge; builds tools once, five minutes
	deploy/local/setup --dev
	deploy/kubernetes/tools
	deploy/kubernetes/crds
	$${VENV_DIR:-.local/venv}/bin/python -m pytest -q -rs -p no:cacheprovider deploy/kubernetes

up: ## broker and ClickHouse in the background, on MQTT_PORT (1883) and CLICKHOUSE_PORT (8123)
	deploy/local/up

down: ## stop what `make up` started; the data stays in .local
	deploy/local/down

day: ## the day that docs/analysts.md asks about, into the ClickHouse of `make up`
	deploy/local/setup --dev
	cargo run --quiet --release --locked -- migrate
	$${VENV_DIR:-.local/venv}/bin/python tests/answers/load_day.py

setup: ## install what the local broker and engine need
	deploy/local/setup

front-test: ## tests of the HTTP front over the engine
	deploy/local/setup --dev
	$${VENV_DIR:-.local/venv}/bin/python -m pytest -q -p no:cacheprovider deploy/local

answers-test: ## what analysts ask, on the engine, against computations written apart; ARGS=--by-day: after milepost backfill
	deploy/local/setup --dev
	cargo build --locked --bin milepost
	$${VENV_DIR:-.local/venv}/bin/python -m pytest -q -p no:cacheprovider tests/answers $(ARGS)

# node_modules says itself when it was filled, dist when it was built.
map/page/node_modules/.package-lock.json: map/page/package-lock.json
	deploy/local/setup --page
	deploy/local/npm --prefix map/page ci
	touch $@

map/page/dist/index.html: map/page/node_modules/.package-lock.json map/page/index.html map/page/vite.config.ts $(wildcard map/page/src/* map/page/public/*)
	deploy/local/npm --prefix map/page run build
	touch $@

page: map/page/dist/index.html ## the live map's page, which milepost-map takes in when it is built

map-test: setup page ## the live map: unit tests of its page, and the page in a real browser between the real parts
	deploy/local/setup --map
	cargo build --locked -p milepost -p milepost-map -p loadgen
	deploy/local/npm --prefix map/page run unit
	deploy/local/npm --prefix map/page run browser

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy --locked --workspace --all-targets -- -D warnings

deny: $(CARGO_DENY) ## bans, licences and sources of the dependencies (advisories need the network: see .github)
	$(CARGO_DENY) check --hide-inclusion-graph bans licenses sources

$(CARGO_DENY):
	@echo "building cargo-deny $(CARGO_DENY_VERSION), once, a few minutes"
	cargo install --locked --root .local/tools --no-default-features --version $(CARGO_DENY_VERSION) cargo-deny

clean-state: down ## forget the local broker's and engine's data
	rm -rf .local/mosquitto .local/clickhouse
