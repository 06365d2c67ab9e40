# The one door. Everything a target needs beyond Rust, cc, Python 3, git and make it installs itself, or names.
SHELL := /bin/bash
.DELETE_ON_ERROR:

export RUST_BACKTRACE ?= 0
SECONDS ?= 3600

.PHONY: help demo map dispatcher quick test check soak up down day page fuzz faults kubernetes replicas bench story figures release containers upgrade brokers trips clean-state

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: ## broker, ClickHouse, milepost and a fleet on free ports; a table and a picture; leaves nothing running
	lab/local/setup & cargo build --profile demo --locked -p milepost -p loadgen; built=$$?; wait $$! && exit $$built
	target/demo/loadgen demo --milepost target/demo/milepost

map: page ## the same parts, a fleet with an hour behind it, and the live map of it; prints the address; until Ctrl-C
	lab/local/setup
	cargo build --release --locked -p milepost -p milepost-map -p loadgen
	target/release/loadgen map

dispatcher: page ## a dispatcher's tasks on the live map, in a browser, counted and timed; PICTURES=/folder keeps a picture of each; three minutes
	lab/local/setup --map
	cargo build --locked -p milepost -p milepost-map -p loadgen
	lab/local/npm --prefix map/page run browser -- dispatcher

quick: ## while you work, a minute: format, lints, pure rooms with a tenth of the cases, the page's unit tests
	python3 tests/run quick $(ARGS)

test: ## every test but the long faults, side by side, all verdicts; ARGS='real answers': only these steps
	python3 tests/run test $(ARGS)

check: ## what CI runs: `make test`, format, lints, licences, manifests; ARGS=manifests: only this step
	python3 tests/run check $(ARGS)

soak: ## new cases for the models, fuzzers and faults for SECONDS (3600); says how to repeat what it finds
	lab/local/setup --dev
	lab/local/setup --faults
	python3 tests/run soak $(SECONDS)

faults: ## the whole fault harness, half an hour; then the mistakes it must find, ten minutes
	lab/local/setup --faults
	cargo build --release --locked --workspace
	target/release/lab faults
	target/release/lab faults --prove
	cargo test --locked --workspace --test bench -- --ignored

kubernetes: ## the manifests on a real control plane, with pods as processes; twelve minutes, and the first time twenty more to build it
	lab/local/setup --dev
	deploy/kubernetes/tools
	deploy/kubernetes/crds
	lab/kubernetes/build
	cargo build --release --locked -p milepost -p loadgen -p strict-broker
	$${VENV_DIR:-.local/venv}/bin/python lab/kubernetes/run.py $(ARGS)
	$${VENV_DIR:-.local/venv}/bin/python lab/kubernetes/chart.py

replicas: ## milepost on replicas that are killed, cut off and turned from: in containers, or with ARGS='--replica URL …' on your own (lab replicas --help)
	lab/local/setup
	cargo build --release --locked -p milepost -p loadgen -p lab
	$(if $(ARGS),target/release/lab replicas $(ARGS),lab/replicas/run)

fuzz:
	fuzz/run

bench: ## milepost beside Node and the floor, nine minutes; ARGS=--full: with Telegraf, longer; ARGS='--what sql|inserts|map|micro': other benches
	lab/local/setup
	cargo build --release --locked --workspace
	target/release/lab bench $(ARGS)

# The quick run builds what `make demo` builds, in a third of the time; the full one measures what is shipped.
STORY_PROFILE = $(if $(findstring --full,$(ARGS)),release,demo)
story: ## milepost, 200 lines of Rust, Node and Bun, from a thousand drivers to ten million, and a page; a quarter of an hour; ARGS=--full: all of it, two hours
	lab/local/setup --story & cargo build --profile $(STORY_PROFILE) --locked -p milepost -p afternoon -p lab; built=$$?; wait $$! && exit $$built
	PATH="$$PATH:$${VENV_DIR:-.local/venv}/bin" target/$(STORY_PROFILE)/lab story $(ARGS); played=$$?; \
	    $${VENV_DIR:-.local/venv}/bin/python lab/story/page.py && exit $$played

release: ## dist/: tarballs, deb, rpm, SBOMs, checksums; built twice and compared, packages installed and removed; half an hour
	deploy/release/build dist
	deploy/release/test dist

# Images and docker-compose.yml as people use them, on any Docker; a quarter of an hour after the images are built.
containers:
	lab/containers/run

upgrade: ## from the last release to this version and back, under load; ARGS=v0.1.0: from another one; ten minutes
	lab/upgrade/run $(ARGS)

# Real brokers, and what happens to them: docs/brokers.md. Ten minutes each, and the first time twenty more to build some.
brokers:
	lab/local/setup
	cargo build --release --locked -p milepost -p loadgen
	python3 lab/brokers/run.py $(ARGS)

# Stops, trips and mileage on labelled days, beside movingpandas and trackintel: a table for docs/results.md.
trips:
	python3 -m venv .local/trips
	.local/trips/bin/pip install --quiet movingpandas trackintel
	.local/trips/bin/python tests/answers/compare_trips.py $(ARGS)

# README's pictures, drawn anew from docs/results.md and docs/story.json.
figures:
	python3 docs/figures/draw.py

up: ## broker and ClickHouse in the background, on MQTT_PORT (1883) and CLICKHOUSE_PORT (8123)
	lab/local/up

down: ## stop what `make up` started; the data stays in .local
	lab/local/down

# The day that docs/analysts.md asks about, into the ClickHouse of `make up`.
day:
	lab/local/setup --dev
	cargo run --quiet --release --locked -- migrate
	$${VENV_DIR:-.local/venv}/bin/python tests/answers/load_day.py

# node_modules says itself when it was filled, dist when it was built.
map/page/node_modules/.package-lock.json: map/page/package-lock.json
	lab/local/setup --page
	lab/local/npm --prefix map/page ci
	touch $@

map/page/dist/index.html: map/page/node_modules/.package-lock.json map/page/index.html $(wildcard map/page/*.ts map/page/src/* map/page/public/*)
	lab/local/npm --prefix map/page run build
	touch $@

# The live map's page, which milepost-map takes in when it is built.
page: map/page/dist/index.html

# Forgets the local broker's and engine's data.
clean-state: down
	rm -rf .local/mosquitto .local/clickhouse
