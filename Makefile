# The few commands a person needs. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help book demo drill kube-drill release test swarm swarm-nightly bench-sim bench-kube image deb test-kube test-kubelet kube-upgrade kube-up kube-demo kube-race kube-kills walls fmt deny fuzz clean ui ui-if-node check-tools wasm-target node-tools

CARGO ?= cargo
RUST_MIN := 1.95
WASM := wasm32-unknown-unknown
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

help: ## List the commands
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | sort | while IFS="$$(printf '\t')" read -r name what; do \
	  printf '  make %-6s %s\n' "$$name" "$$what"; done

book: ## Build the book of docs/ into target/book (needs mdbook)
	@command -v mdbook >/dev/null 2>&1 || { echo "mdbook is missing. Install it with: cargo install --locked mdbook"; exit 1; }
	mdbook build

demo: check-tools ## Build everything and watch a gang job wait, run and survive
	$(CARGO) build --release -p phalanx-cli -p phalanx-examples
	$(TARGET_DIR)/release/demo

drill: check-tools ## Inject faults into real gang jobs on this machine, check them, and write a report page (two minutes)
	$(CARGO) build --release -p phalanx-cli -p phalanx-examples -p phalanx-bench
	$(TARGET_DIR)/release/phalanx-bench drill --page $(TARGET_DIR)/drill.html --json $(TARGET_DIR)/drill.json

# Nothing is built twice there, so incremental builds would only fill the disk. Cargo is asked for targets of the workspace and
# not of a package: a package by itself has other features of its dependencies, and they would be built again.
# Where a test panics is said without line tables too; they make programs twice as large.
test: export CARGO_INCREMENTAL = 0
test: export CARGO_PROFILE_DEV_DEBUG = none
test: check-tools wasm-target node-tools ui-if-node ## Everything that must pass: format, lints, walls, tests, 2 million steps of the swarm, short demos
	$(CARGO) run --quiet --bin xtask -- ci
	$(MAKE) --no-print-directory swarm
	$(CARGO) build --quiet --workspace --bin phalanx --bin demo --bin kube-demo
	$(TARGET_DIR)/debug/demo --quick
	$(TARGET_DIR)/debug/kube-demo

SWARM_STEPS ?= 2000000
SWARM_SEED ?= 1
swarm: check-tools ## Random clusters, work and faults, on fixed seeds, two processes
	PHALANX_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null) $(CARGO) build --quiet --profile decisions -p phalanx-engine -p phalanx-sim --example decisions --bin phalanx-sim
	@half=$$(($(SWARM_STEPS) / 2)); sim=$(TARGET_DIR)/decisions/phalanx-sim; \
	$$sim swarm --seed $(SWARM_SEED) --steps $$half --shrink $(TARGET_DIR)/swarm-1.jsonl & first=$$!; \
	$$sim swarm --seed $$(($(SWARM_SEED) + 10000000)) --steps $$half --shrink $(TARGET_DIR)/swarm-2.jsonl; second=$$?; \
	wait $$first && [ $$second -eq 0 ]

swarm-nightly: ## The same on seeds that begin with today's date
	$(MAKE) --no-print-directory swarm SWARM_SEED=$$(date +%Y%m%d)00000000 SWARM_STEPS=20000000

bench-sim: check-tools ## All tables of the simulator, into bench/results/simulator.md and a page (half an hour)
	$(CARGO) run --release -p phalanx-bench -- sim all --into bench/results/simulator.md --page $(TARGET_DIR)/bench-sim.html --picture docs/overload.svg
	@echo "bench/results/simulator.md, docs/overload.svg and $(TARGET_DIR)/bench-sim.html are written"

# The Kubernetes of all control planes below: 1.37 or 1.36. If it is not set, the newest.
KUBERNETES ?= $(PHALANX_KUBERNETES)
test-kube kube-up kube-kills kube-demo kube-race kube-drill bench-kube: export PHALANX_KUBERNETES = $(KUBERNETES)

test-kube: check-tools ## The tests on a real control plane of KUBERNETES (1.37), ten minutes (needs Go)
	$(CARGO) test -p phalanx-tests --test kube

kube-upgrade: check-tools ## Gangs that run while Kubernetes is upgraded from 1.36 to 1.37 (minutes; needs Go)
	$(CARGO) test -p phalanx-tests --test kube -- --ignored kubernetes_is_upgraded --nocapture

NODES ?= 16
REAL ?= 0
kube-up: check-tools ## A real control plane of KUBERNETES (1.37) with NODES (16) fake GPU nodes and REAL (0) real ones, until Ctrl-C (needs Go)
	@$(CARGO) run --quiet -p phalanx-controlplane -- up --nodes $(NODES) --real $(REAL)

IMAGE ?=
image: check-tools ## The image of the release as an archive, without a container daemon; IMAGE=REGISTRY/NAME:TAG names it (Linux)
	$(CARGO) build --release --locked -p phalanx-cli
	@$(CARGO) run --quiet -p phalanx-controlplane -- image --program $(TARGET_DIR)/release/phalanx \
	  --to $(TARGET_DIR)/phalanx-image.tar $(if $(IMAGE),--name $(IMAGE))

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
deb: check-tools ## The Debian package of the daemon for one machine (Debian, Ubuntu)
	$(CARGO) build --release --locked -p phalanx-cli
	@deploy/deb/build.sh $(TARGET_DIR)/release/phalanx $(VERSION) $(TARGET_DIR)/phalanx.deb
	@echo "$(TARGET_DIR)/phalanx.deb is written"

MUSL := $(shell uname -m)-unknown-linux-musl
release: check-tools ## Archives, the package, SBOM, provenance and checksums of a release, in target/release-VERSION (half an hour; needs Node)
	@command -v musl-gcc >/dev/null 2>&1 || { echo "musl-gcc is missing: apt-get install musl-tools"; exit 1; }
	@$(CARGO) cyclonedx --version >/dev/null 2>&1 || { \
	  echo "cargo-cyclonedx is missing. Install it with: cargo install --locked cargo-cyclonedx"; exit 1; }
	rustup target add $(MUSL)
	$(MAKE) --no-print-directory ui
	$(CARGO) build --profile dist --locked -p phalanx-cli
	$(CARGO) build --profile dist --locked -p phalanx-cli --target $(MUSL)
	deploy/release/build.sh $(VERSION) $(TARGET_DIR)/dist/phalanx $(TARGET_DIR)/$(MUSL)/dist/phalanx $(TARGET_DIR)/release-$(VERSION)

# The manifests name the image as it is called by default.
test-kubelet: override IMAGE =
test-kubelet: export PHALANX_IMAGE = $(abspath $(TARGET_DIR)/phalanx-image.tar)
test-kubelet: check-tools image ## Gangs, and the image, on real kubelets, containerd and runc, of MPI too where it is installed (minutes; needs Go and root)
	$(CARGO) test -p phalanx-tests --test kube -- --include-ignored real_nodes --nocapture

kube-kills: check-tools ## The scheduler killed at fifty points on a real control plane (minutes; needs Go)
	$(CARGO) test -p phalanx-tests --test kube -- --ignored fifty_kill_points --nocapture

kube-demo: check-tools ## Four workers on two 8-GPU nodes of a real control plane: kube-scheduler beside Phalanx (needs Go)
	$(CARGO) build --release -p phalanx-cli -p phalanx-examples
	$(TARGET_DIR)/release/kube-demo

kube-race: check-tools ## Real MPI jobs on two real nodes with a shaped network: kube-scheduler beside Phalanx (minutes; needs Go, Open MPI, root)
	$(CARGO) build --release -p phalanx-cli -p phalanx-examples
	$(TARGET_DIR)/release/kube-race

# `make kube-drill FAULTS="rank-killed node-drained"` injects these alone.
FAULTS ?=
kube-drill: check-tools ## Inject FAULTS (all) into gangs on real kubelets, check them, and write a report page (five minutes; needs Go and root)
	$(CARGO) build --release -p phalanx-cli -p phalanx-examples -p phalanx-bench
	$(TARGET_DIR)/release/phalanx-bench kube-drill $(addprefix --only ,$(FAULTS)) --page $(TARGET_DIR)/kube-drill.html --json $(TARGET_DIR)/kube-drill.json

bench-kube: check-tools ## Schedulers on a real API server with 1,000 and 5,000 fake nodes, into bench/results/kubernetes.md (hours; needs Go)
	$(CARGO) build --release -p phalanx-cli
	$(CARGO) run --release -p phalanx-bench -- kube --runner bare --runner kube-scheduler --runner phalanx --into bench/results/kubernetes.md

ui: ## The dashboard, into ui/dist; the next build of phalanx embeds it (needs Node 20 and npm)
	npm --prefix ui ci --no-audit --no-fund --loglevel=error
	npm --prefix ui run --silent check
	npm --prefix ui test --silent >/dev/null
	npm --prefix ui run --silent build
	@touch crates/api/src/http/page.rs

# Tests of the dashboard say what is missing and are passed over without it, but not in CI.
ui-if-node:
	@if command -v npm >/dev/null 2>&1 || [ -n "$$CI" ]; then $(MAKE) --no-print-directory ui; \
	else echo "The dashboard is not built: npm is missing"; fi

walls: check-tools wasm-target ## Who may use whom, bans, no floats in the engine
	$(CARGO) run --quiet -p xtask -- walls

fmt: check-tools ## Format all code
	$(CARGO) fmt --all

deny: check-tools ## Licences, bans and sources of what is linked in
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
	  echo "cargo-deny is missing. Install it with: cargo install --locked cargo-deny"; exit 1; }
	$(CARGO) deny check --allow unused-wrapper bans licenses sources

SECONDS ?= 60
fuzz: check-tools ## Fuzz every reader, each target for SECONDS (60)
	@fuzz/run.sh $(SECONDS)

clean: ## Remove all build results
	$(CARGO) clean

check-tools:
	@command -v $(CARGO) >/dev/null 2>&1 || { \
	  echo "cargo is missing. Install Rust $(RUST_MIN) or newer from https://rustup.rs, then open a new shell."; exit 1; }
	@command -v rustc >/dev/null 2>&1 || { \
	  echo "rustc is missing. Install Rust $(RUST_MIN) or newer from https://rustup.rs, then open a new shell."; exit 1; }
	@found=$$(rustc --version | cut -d' ' -f2); \
	oldest=$$(printf '%s\n%s\n' "$(RUST_MIN)" "$$found" | sort -V | head -n 1); \
	[ "$$oldest" = "$(RUST_MIN)" ] || { \
	  echo "rustc is $$found, and $(RUST_MIN) is the oldest that builds this. Update it with: rustup update stable"; exit 1; }
	@command -v cc >/dev/null 2>&1 || { \
	  echo "A C compiler is missing: parts of SQLite and TLS are built from source. Install one with"; \
	  echo "  Debian, Ubuntu:  apt-get install build-essential"; \
	  echo "  Fedora, RHEL:    dnf install gcc"; \
	  echo "  macOS:           xcode-select --install"; exit 1; }

# What real nodes consist of beside the kubelet, a wall clock that a test can set, a router of requests, and a browser. Tests say what is missing and are passed over, but not in CI.
NODE_TOOLS := containerd runc containernetworking-plugins busybox-static iproute2 libfaketime haproxy chromium
node-tools:
	@[ -z "$$CI" ] || dpkg --status $(NODE_TOOLS) >/dev/null 2>&1 || { \
	  apt-get update --quiet=2 && \
	  DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends $(NODE_TOOLS) >/dev/null; } || { \
	  echo "Tests on real nodes need: apt-get install $(NODE_TOOLS)"; exit 1; }

# Rust from a distribution has no rustup, but may have the target's library all the same.
wasm-target:
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/$(WASM)" ] || { \
	  command -v rustup >/dev/null 2>&1 && rustup target add $(WASM); } || { \
	  echo "The target $(WASM) is missing. With rustup: rustup target add $(WASM)"; \
	  echo "Debian, Ubuntu: apt-get install libstd-rust-dev-wasm32"; exit 1; }
