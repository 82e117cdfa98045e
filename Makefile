# What a newcomer types. Everything else is a script in scripts/ or a cargo command.

.PHONY: help demo demo-protect test web-test bench suites suites-exec apps build dist dist-test install

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

demo: ## record a race in a forum service and replay it, on a private throw-away Postgres
	@scripts/setup demo
	@scripts/demo

demo-protect: ## a memcached whose machine is lost three times, under a client that counts; on network namespaces, as root
	@scripts/setup test
	@scripts/demo-protect

test: ## everything that must be true: formatting, lints, audit, unit, property, simulation and end-to-end tests
	@scripts/setup test
	@scripts/test

web-test: ## the page of `hindcast web` in a real browser; pictures of its screens in target/screenshots
	@scripts/setup web
	@scripts/web-test

bench: ## the figures of docs/results, measured on this machine
	@scripts/setup bench
	@. scripts/env; cargo build --release --locked -p hindcast-cli -p hindcast-workloads && bench/figures

suites: ## other people's test suites, direct and through the recorder: what differs
	@scripts/setup suites
	@. scripts/env; cargo build --release --locked -p hindcast-cli -p hindcast-workloads && python3 -m unittest discover -q tests/suites && tests/suites/run $(SUITES)

suites-exec: ## other people's test suites and programs with threads, plain, recorded and replayed: what differs
	@scripts/setup suites-exec
	@. scripts/env; cargo build --release --locked -p hindcast-cli && tests/suites/exec/run $(SUITES)

apps: ## unmodified applications, each recorded, replayed and retroacted: a row of docs/results/applications.md
	@scripts/setup apps
	@. scripts/env; cargo build --release --locked -p hindcast-cli -p hindcast-preload && target/release/hindcast extension install && \
		for app in $(or $(APPS),$(notdir $(wildcard tests/applications/*))); do bench/applications.py $$app --rounds 1 || exit 1; done

build: ## target/release/hindcast
	@scripts/setup build
	@. scripts/env; cargo build --release --locked -p hindcast-cli

dist: ## a wheel, an npm package, a .deb, a container's and Kubernetes' files in target/dist; of another binary: make dist BINARY=…
	@scripts/setup dist
	@packaging/build $(BINARY)

dist-test: ## each package of target/dist, installed where nothing else is, records a service and replays it
	@scripts/setup dist-test
	@scripts/dist-test

install: ## hindcast into ~/.cargo/bin
	@scripts/setup build
	@. scripts/env; cargo install --locked --path crates/cli
