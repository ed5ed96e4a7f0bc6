# Plexforge. `make demo` shows the whole pipeline, `make test` runs every check; both do their own set-up.
# The recipes are scripts in .ci/lib; each says what it does.
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## Set-up, build, stack, then the main job through the REST API
	@.ci/lib/demo.sh

.PHONY: setup
setup: ## Install missing Debian packages, Rust and the Python environment with libtorch
	@.ci/lib/setup.sh

.PHONY: build
build: ## Build every program (needs `make setup` once)
	@.ci/lib/build.sh

.PHONY: up
up: ## Start the private servers, the gateway and the seven services
	@.ci/lib/stack.sh up

.PHONY: down
down: ## Stop everything that `make up` or `make demo` started
	@.ci/lib/stack.sh down

.PHONY: status
status: ## Show which parts of the stack run
	@.ci/lib/stack.sh status

.PHONY: clean-local
clean-local: ## Stop the stack and remove its data (.local)
	@.ci/lib/stack.sh clean

.PHONY: test
test: ## Every check and test, as in CI
	@.ci/lib/test.sh

.PHONY: test-torch-free
test-torch-free: ## The tests of the crates that need no libtorch
	@.ci/lib/test.sh torch-free

.PHONY: test-golden
test-golden: ## The parity tests against golden data (PPX_GOLDEN_DIR, default tests/golden)
	@.ci/lib/test.sh golden

.PHONY: parity-live
parity-live: ## The golden tests against three fresh random models made with the published Python package
	@.ci/lib/parity-live.sh

.PHONY: soak
soak: ## Half an hour of eight live calls, release build; wants the machine for itself
	@.ci/lib/soak.sh

.PHONY: test-ui
test-ui: ## Swagger UI in headless Chromium against the running stack (needs chromium and npm)
	@.ci/lib/test.sh ui

.PHONY: test-servers-down
test-servers-down: ## Stop the servers that tests share
	@.ci/lib/test-servers.sh down

.PHONY: lint
lint: ## Formatting and clippy over everything
	@.ci/lib/test.sh format lint

.PHONY: fmt
fmt: ## Format the code
	@cargo fmt --all

.PHONY: check-torch
check-torch: ## Type-check the torch crates without libtorch
	@cargo check --locked -p nn -p personaplex -p trainer -p inference --features nn/doc-only,personaplex/doc-only,trainer/doc-only,inference/doc-only

.PHONY: openapi
openapi: build ## Write openapi/openapi.json from the code and validate it
	@$${CARGO_TARGET_DIR:-target}/debug/gateway openapi
	@.ci/lib/test.sh contracts

.PHONY: ci
ci: test ## The same as `make test`
