#!/usr/bin/env bash
# Everything that must hold before a change lands, cheap stages first. `make test` and CI run it whole; with names of
# stages as arguments it runs only those: setup format lint build architecture contracts tests.
#
# Every cargo call selects the whole workspace with libtorch at hand. Linting and testing the torch-free members
# apart would resolve to other features of shared dependencies and compile a sixth of the graph twice, the C++
# libraries included; that they need no libtorch is checked on the dependency graph (stage architecture).
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$ROOT/.ci/lib/process.sh"

VALIDATOR_VERSION=0.9.0
REDOCLY_VERSION=2.77.0
PLAYWRIGHT_VERSION=1.64.1

setup() { "$ROOT/.ci/lib/setup.sh" test; }

format() { cargo fmt --all --check ${CI:+-- --color never}; }

lint() { with_torch cargo clippy --workspace --all-targets --locked -- -D warnings; }

build() { "$ROOT/.ci/lib/build.sh"; }

architecture() { with_torch run_tests --test architecture; }

# The committed OpenAPI document is the one that the code makes, and valid; the compose files parse.
contracts() {
    "$BIN_DIR/gateway" openapi --check
    validate_openapi
    check_compose
}

tests() { with_torch run_tests; }

# By hand only: the tests of the default members, without libtorch in the environment.
torch-free() {
    if have_nextest; then
        cargo nextest run --locked -E 'not (package(system-tests) & binary(it))'
    else
        cargo test --locked --lib --bins
    fi
}

# By hand only: the tests against golden data, by the names of their files or their own.
golden() {
    if have_nextest; then
        with_torch cargo nextest run --workspace --locked -E 'binary(/parity|golden/) | test(/parity|golden/)'
    else
        with_torch cargo test --workspace --locked --test '*parity*' --test '*golden*'
    fi
}

# By hand only, with the stack up: Swagger UI in a headless Chromium authorises and executes listRuns.
ui() {
    [ -f "$LOCAL_DIR/client.env" ] || fail "the stack does not run" "run \`make up\` first"
    have chromium && have npm || fail "chromium or npm is missing" "install the packages chromium, nodejs and npm"
    local playwright="$CACHE_DIR/playwright-core-$PLAYWRIGHT_VERSION"
    once "$playwright" install_playwright "$playwright"
    . "$LOCAL_DIR/client.env"
    # The script finds its module beside itself.
    cp gateway/tests/ui/swagger.mjs "$playwright/"
    GATEWAY_URL=$PPX_API_URL API_KEY=$PPX_API_KEY node "$playwright/swagger.mjs" "$LOCAL_DIR/swagger.png"
    note "screenshot: .local/swagger.png"
}

have_nextest() { cargo nextest --version >/dev/null 2>&1; }

# The same package selection as build.sh, for the same reason.
run_tests() {
    if have_nextest; then
        cargo nextest run --workspace --locked "$@"
    else
        cargo test --workspace --locked "$@"
    fi
}

with_torch() { (. "$ROOT/.ci/lib/torch-env.sh" && "$@"); }

# once FOLDER COMMAND...: runs an installation into a cache folder unless it was completed before.
once() {
    local folder=$1
    shift
    [ ! -f "$folder/.complete" ] || return 0
    mkdir -p "$CACHE_DIR"
    (flock 9 && { [ -f "$folder/.complete" ] || { rm -rf "$folder" && "$@" && touch "$folder/.complete"; }; }) 9>"$folder.lock"
}

install_validator() {
    note "installing openapi-spec-validator $VALIDATOR_VERSION into $1"
    python3 -m venv "$1" && "$1/bin/python" -m pip install --disable-pip-version-check -q "openapi-spec-validator==$VALIDATOR_VERSION"
}

install_redocly() {
    note "installing @redocly/cli $REDOCLY_VERSION into $1"
    mkdir -p "$1" && npm install --silent --no-audit --no-fund --prefix "$1" "@redocly/cli@$REDOCLY_VERSION"
}

install_playwright() {
    note "installing playwright-core $PLAYWRIGHT_VERSION into $1"
    mkdir -p "$1" && npm install --silent --no-audit --no-fund --prefix "$1" "playwright-core@$PLAYWRIGHT_VERSION"
}

validate_openapi() {
    local document=openapi/openapi.json
    [ -f "$document" ] || fail "$document is missing" "run \`make openapi\`"
    local validator="$CACHE_DIR/openapi-spec-validator-$VALIDATOR_VERSION"
    once "$validator" install_validator "$validator"
    "$validator/bin/openapi-spec-validator" "$document"
    local node_major
    node_major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')
    if [ "${node_major:-0}" -lt 20 ] || ! have npm; then
        note "Redocly lint skipped: it needs node 20 or newer with npm"
        return 0
    fi
    local redocly="$CACHE_DIR/redocly-$REDOCLY_VERSION"
    once "$redocly" install_redocly "$redocly"
    local -a config=()
    [ ! -f openapi/redocly.yaml ] || config=(--config openapi/redocly.yaml)
    REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true \
        "$redocly/node_modules/.bin/redocly" lint "${config[@]}" "$document"
}

check_compose() {
    local -a compose
    if docker compose version >/dev/null 2>&1; then
        compose=(docker compose)
    elif have docker-compose; then
        compose=(docker-compose)
    else
        note "compose files not checked: neither \`docker compose\` nor docker-compose is installed"
        return 0
    fi
    local -a env=(env PPX_POSTGRES_PASSWORD=x PPX_RABBITMQ_PASSWORD=x PPX_INTERNAL_TOKEN=x PPX_BOOTSTRAP_KEY=x)
    "${env[@]}" "${compose[@]}" -f docker/compose.yml config -q
    "${env[@]}" "${compose[@]}" -f docker/compose.yml -f docker/compose.gpu.yml config -q
    note "docker/compose.yml and docker/compose.gpu.yml are valid"
}

# The servers that the tests share are stopped at the end, unless they ran before.
stop_test_servers() { "$ROOT/.ci/lib/test-servers.sh" down "$TARGET_DIR/testkit"; }
if [ -n "${CI:-}" ] || [ ! -f "$TARGET_DIR/testkit/servers.env" ]; then trap stop_test_servers EXIT; fi

[ $# -gt 0 ] || set -- setup format lint build architecture contracts tests
passed=0
for stage in "$@"; do
    started=$SECONDS
    say "$stage"
    # Not in a condition: that would switch errexit off inside the stage.
    set +e
    (set -e; "$stage")
    result=$?
    set -e
    if [ "$result" -ne 0 ]; then
        say "$stage failed after $((SECONDS - started)) s; again: .ci/lib/test.sh $stage"
        printf 'stages: %d passed, 1 failed\n' "$passed"
        exit 1
    fi
    note "$stage: $((SECONDS - started)) s"
    passed=$((passed + 1))
done
printf 'stages: %d passed, 0 failed\n' "$passed"
