# The entry point for every task. A target needs Rust, cc, Python 3, git and make. It installs what else it needs, or names it.
SHELL := /bin/bash
.DELETE_ON_ERROR:

export RUST_BACKTRACE ?= 0
SECONDS ?= 3600

.PHONY: help demo map dispatcher quick test check soak recipe up down day page fuzz faults kubernetes replicas bench story figures release containers upgrade brokers trips clean-state

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: ## run broker, ClickHouse, milepost and a fleet on free ports; prints a table and draws a picture; leaves nothing running
	lab/local/setup & cargo build --profile demo --locked -p milepost -p loadgen; built=$$?; wait $$! && exit $$built
	target/demo/loadgen demo --milepost target/demo/milepost

map: page ## run the demo's servers with a fleet that has already driven for an hour, and the live map; prints the map's address; ends with Ctrl-C
	lab/local/setup
	cargo build --release --locked -p milepost -p milepost-map -p loadgen
	target/release/loadgen map

dispatcher: page ## do a dispatcher's tasks on the live map in a browser, counted and timed; PICTURES=/folder keeps a picture of each task; three minutes
	lab/local/setup --map
	cargo build --locked -p milepost -p milepost-map -p loadgen
	lab/local/npm --prefix map/page run browser -- dispatcher

quick: ## while you work: format, lints, tests of the crates without I/O with a tenth of the cases, unit tests of the page; one minute
	python3 tests/run quick $(ARGS)

test: ## every test except the long fault runs, in parallel, without stopping at a failure; ARGS='real answers': only these steps
	python3 tests/run test $(ARGS)

check: ## what CI runs: `make test`, format, lints, licences, manifests; ARGS=manifests: only this step
	python3 tests/run check $(ARGS)

soak: ## run models, fuzzers and faults with new random cases for SECONDS (3600); says how to repeat each finding
	lab/local/setup --dev
	lab/local/setup --faults
	python3 tests/run soak $(SECONDS)

recipe: ## apply docs/add-a-field.md to a copy, compile and run its tests, migrate and publish with it; four minutes
	lab/local/setup
	cargo test --locked --workspace --test real -- --ignored add_a_field

faults: ## run the whole fault harness, half an hour; then check that it finds every planted mistake, ten minutes
	lab/local/setup --faults
	cargo build --release --locked --workspace
	target/release/lab faults
	target/release/lab faults --prove
	cargo test --locked --workspace --test bench -- --ignored

kubernetes: ## test the manifests on a real control plane, with pods as processes; twelve minutes, and twenty more to build it the first time
	lab/local/setup --dev
	deploy/kubernetes/tools
	deploy/kubernetes/crds
	lab/kubernetes/build
	cargo build --release --locked -p milepost -p loadgen -p strict-broker
	$${VENV_DIR:-.local/venv}/bin/python lab/kubernetes/run.py $(ARGS)
	$${VENV_DIR:-.local/venv}/bin/python lab/kubernetes/chart.py

replicas: ## test milepost with ClickHouse replicas that are killed, cut off and made unreachable: in containers, or with ARGS='--replica URL …' on your own (lab replicas --help)
	lab/local/setup
	cargo build --release --locked -p milepost -p loadgen -p lab
	$(if $(ARGS),target/release/lab replicas $(ARGS),lab/replicas/run)

fuzz:
	fuzz/run

bench: ## compare milepost with a Node consumer and with the fastest possible one, nine minutes; ARGS=--full: with Telegraf, longer; ARGS='--what sql|inserts|map|micro': other benches
	lab/local/setup
	cargo build --release --locked --workspace
	target/release/lab bench $(ARGS)

# The quick run uses the profile of `make demo`, which builds in a third of the time; --full measures the release profile.
STORY_PROFILE = $(if $(findstring --full,$(ARGS)),release,demo)
story: ## compare milepost with 200 lines of Rust, Node and Bun, from a thousand drivers to ten million, and make a page of the results; 15 minutes; ARGS=--full: all steps, two hours
	lab/local/setup --story & cargo build --profile $(STORY_PROFILE) --locked -p milepost -p afternoon -p lab; built=$$?; wait $$! && exit $$built
	PATH="$$PATH:$${VENV_DIR:-.local/venv}/bin" target/$(STORY_PROFILE)/lab story $(ARGS); played=$$?; \
	    $${VENV_DIR:-.local/venv}/bin/python lab/story/page.py && exit $$played

release: ## build tarballs, deb, rpm, SBOMs and checksums into dist/, twice, and compare; install and remove the packages; half an hour
	deploy/release/build dist
	deploy/release/test dist

# Tests the images and docker-compose.yml as users run them, on any Docker. Takes 15 minutes once the images are built.
containers:
	lab/containers/run

upgrade: ## test the upgrade from the last release to this version, and the downgrade, under load; ARGS=v0.1.0: from another version; ten minutes
	lab/upgrade/run $(ARGS)

# Tests milepost with real brokers and faults: docs/brokers.md. Ten minutes for each broker; the first run builds some, twenty minutes more.
brokers:
	lab/local/setup
	cargo build --release --locked -p milepost -p loadgen
	python3 lab/brokers/run.py $(ARGS)

# Compares stops, trips and mileage with movingpandas and trackintel on labelled days; prints a table for docs/results.md.
trips:
	python3 -m venv .local/trips
	.local/trips/bin/pip install --quiet movingpandas trackintel
	.local/trips/bin/python tests/answers/compare_trips.py $(ARGS)

# Redraws the README's pictures from docs/results.md and docs/story.json.
figures:
	python3 docs/figures/draw.py

up: ## start broker and ClickHouse in the background, on MQTT_PORT (1883) and CLICKHOUSE_PORT (8123)
	lab/local/up

down: ## stop what `make up` started; the data stays in .local
	lab/local/down

# Loads the day that the queries of docs/analysts.md are about into the ClickHouse of `make up`.
day:
	lab/local/setup --dev
	cargo run --quiet --release --locked -- migrate
	$${VENV_DIR:-.local/venv}/bin/python tests/answers/load_day.py

# The modification times of these two files say when node_modules was filled and when dist was built.
map/page/node_modules/.package-lock.json: map/page/package-lock.json
	lab/local/setup --page
	lab/local/npm --prefix map/page ci
	touch $@

map/page/dist/index.html: map/page/node_modules/.package-lock.json map/page/index.html $(wildcard map/page/*.ts map/page/src/* map/page/public/*)
	lab/local/npm --prefix map/page run build
	touch $@

# Builds the live map's page, which the build of milepost-map embeds.
page: map/page/dist/index.html

# Deletes the data of the local broker and the local ClickHouse.
clean-state: down
	rm -rf .local/mosquitto .local/clickhouse
