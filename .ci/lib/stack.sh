#!/usr/bin/env bash
# The stack on this machine: private servers, the gateway and the seven services, all under .local.
#   up       start what does not run yet; a program that was rebuilt is restarted
#   down     stop everything that `up` started
#   clean    down, and remove the data
#   status   what runs
# The ports below can be set in the environment (PPX_GATEWAY_PORT=8081 make up).
# PPX__DATABASE__URL, PPX__REDIS__URL, PPX__AMQP__URL name servers of one's own: then none is started for them.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$ROOT/.ci/lib/torch-env.sh"
. "$ROOT/.ci/lib/process.sh"
. "$ROOT/.ci/lib/servers.sh"

POSTGRES_PORT=${PPX_POSTGRES_PORT:-55432}
REDIS_PORT=${PPX_REDIS_PORT:-56379}
RABBITMQ_PORT=${PPX_RABBITMQ_PORT:-55672}
GATEWAY_PORT=${PPX_GATEWAY_PORT:-8080}
INFERENCE_PORT=${PPX_INFERENCE_PORT:-9200}

# Name and port of the internal listener (health, metrics); started in this order.
SERVICES=(
    gateway:9100 datagen:9101 tts:9102 align:9103 dataset:9104 trainer:9105 inference:9106 evaluation:9107
)
READY_SECONDS=60

start_servers() {
    local postgres="" failed=0
    if [ -z "${PPX__DATABASE__URL:-}" ]; then
        start_postgres "$LOCAL_DIR" "$POSTGRES_PORT" &
        postgres=$!
    fi
    if [ -z "${PPX__REDIS__URL:-}" ]; then
        start_redis "$LOCAL_DIR" "$REDIS_PORT" || failed=1
        export PPX__REDIS__URL="redis://127.0.0.1:$REDIS_PORT"
    fi
    if [ -z "${PPX__AMQP__URL:-}" ]; then
        start_rabbitmq "$LOCAL_DIR" "$RABBITMQ_PORT" || failed=1
        export PPX__AMQP__URL="amqp://guest:guest@127.0.0.1:$RABBITMQ_PORT/%2f"
    fi
    if [ -n "$postgres" ]; then
        wait "$postgres" || failed=1
        [ "$failed" -ne 0 ] || make_database "$POSTGRES_PORT" plexforge
        export PPX__DATABASE__URL="postgres://postgres@127.0.0.1:$POSTGRES_PORT/plexforge"
    fi
    [ "$failed" -eq 0 ] || fail "the servers did not start" "their logs are in .local/log; \`make down\` stops what did start"
}

# Made once and kept, readable by the owner alone: the token between gateway and services, and the first API key.
load_secrets() {
    local file="$LOCAL_DIR/secrets.env"
    if [ ! -f "$file" ]; then
        local key token
        key=$("$BIN_DIR/gateway" bootstrap-key)
        token=$(head -c 32 /dev/urandom | sha256sum | cut -d' ' -f1)
        (umask 077 && printf 'PPX__INTERNAL__TOKEN=%s\nPPX__AUTH__BOOTSTRAP_KEY=%s\n' "$token" "$key" >"$file.tmp")
        mv "$file.tmp" "$file"
    fi
    set -a
    . "$file"
    set +a
}

# What each service gets besides the addresses that all of them get.
service_env() { # NAME HEALTH-PORT
    echo "PPX__HEALTH__PORT=$2"
    echo "NO_COLOR=1"
    case $1 in
    gateway)
        echo "PPX__GATEWAY__PORT=$GATEWAY_PORT"
        echo "PPX__GATEWAY__INFERENCE_URL=http://127.0.0.1:$INFERENCE_PORT"
        ;;
    inference) echo "PPX__INFERENCE__PORT=$INFERENCE_PORT" ;;
    evaluation) echo "PPX__EVALUATION__GATEWAY_URL=http://127.0.0.1:$GATEWAY_PORT" ;;
    esac
}

pidfile() { echo "$LOCAL_DIR/run/$1.pid"; }
logfile() { echo "$LOCAL_DIR/log/$1.log"; }
ready() { curl -fs -o /dev/null -m 2 "http://127.0.0.1:$1/health/ready"; }

outdated() { # NAME: the program or the configuration changed since it was started
    [ "$BIN_DIR/$1" -nt "$(pidfile "$1")" ] || [ -n "$(find configs -type f -newer "$(pidfile "$1")" -print -quit 2>/dev/null)" ]
}

start_service() { # NAME HEALTH-PORT
    local name=$1 port=$2
    if alive "$(pidfile "$name")"; then
        outdated "$name" || return 0
        note "restarting $name: it was rebuilt or reconfigured"
        stop_process "$(pidfile "$name")" 20
    else
        case $name in
        gateway) port_is_free "the public API" "$GATEWAY_PORT" "$(pidfile gateway)" PPX_GATEWAY_PORT || exit 1 ;;
        inference) port_is_free "live sessions" "$INFERENCE_PORT" "$(pidfile inference)" PPX_INFERENCE_PORT || exit 1 ;;
        esac
        ! port_open "$port" || fail "port $port, meant for $name's health and metrics, is in use by another program"
    fi
    [ ! -f "$(logfile "$name")" ] || mv "$(logfile "$name")" "$(logfile "$name").1"
    local -a variables
    mapfile -t variables < <(service_env "$name" "$port")
    spawn "$(pidfile "$name")" "$(logfile "$name")" env "${variables[@]}" "$BIN_DIR/$name"
}

show_failure() { # NAME WHAT
    echo "error: $1 $2; the end of .local/log/$1.log:" >&2
    tail -n 25 "$(logfile "$1")" >&2 || true
    fail "the stack is not complete" "see the log above; \`make up\` tries again, \`make down\` stops the rest"
}

up() {
    mkdir -p "$LOCAL_DIR"/{log,run,artifacts,import}
    exec 9>"$LOCAL_DIR/lock"
    flock -n 9 || { say "another make is starting or stopping the stack: waiting"; flock 9; }
    local service name
    for service in "${SERVICES[@]}"; do
        name=${service%:*}
        [ -x "$BIN_DIR/$name" ] || fail "$BIN_DIR/$name is missing" "run \`make build\`"
    done
    start_servers
    load_secrets
    export PPX__ARTIFACTS__ROOT="${PPX__ARTIFACTS__ROOT:-$LOCAL_DIR/artifacts}"
    export PPX__ARTIFACTS__IMPORT_DIR="${PPX__ARTIFACTS__IMPORT_DIR:-$LOCAL_DIR/import}"
    "$BIN_DIR/gateway" migrate >"$LOCAL_DIR/log/migrate.log" 2>&1 ||
        { cat "$LOCAL_DIR/log/migrate.log" >&2; fail "the database could not be migrated" "see .local/log/migrate.log"; }
    for service in "${SERVICES[@]}"; do
        start_service "${service%:*}" "${service#*:}"
    done
    local result
    for service in "${SERVICES[@]}"; do
        name=${service%:*}
        result=0
        await "$(pidfile "$name")" "$READY_SECONDS" ready "${service#*:}" || result=$?
        case $result in
        1) show_failure "$name" "is not ready after $READY_SECONDS s" ;;
        2) show_failure "$name" "ended" ;;
        esac
    done
    (umask 077 && printf 'export PPX_API_URL=%s\nexport PPX_API_KEY=%s\nexport PPX_IMPORT_DIR=%q\n' \
        "http://127.0.0.1:$GATEWAY_PORT" "$PPX__AUTH__BOOTSTRAP_KEY" "$PPX__ARTIFACTS__IMPORT_DIR" >"$LOCAL_DIR/client.env")
    say "the stack runs: http://127.0.0.1:$GATEWAY_PORT (Swagger UI at /docs, logs in .local/log)"
    note ". .local/client.env    sets PPX_API_URL and PPX_API_KEY for ppx"
}

down() {
    [ -d "$LOCAL_DIR" ] || return 0
    exec 9>"$LOCAL_DIR/lock"
    flock 9
    local service
    local -a stopping=()
    # Together: each finishes what it holds, so the slowest one sets the time.
    for service in "${SERVICES[@]}"; do
        stop_process "$(pidfile "${service%:*}")" 20 &
        stopping+=($!)
    done
    wait "${stopping[@]}"
    stop_servers "$LOCAL_DIR"
    say "the stack is stopped"
}

clean() {
    [ -d "$LOCAL_DIR" ] || return 0
    down
    remove_server_data "$LOCAL_DIR"
    rm -rf "$LOCAL_DIR"
    say "the data of the stack is removed"
}

status() {
    local name
    for name in postgres redis epmd rabbitmq "${SERVICES[@]%:*}"; do
        if alive "$(pidfile "$name")"; then
            printf '    %-11s running (pid %s)\n' "$name" "$(cut -d' ' -f1 "$(pidfile "$name")")"
        else
            printf '    %-11s not running\n' "$name"
        fi
    done
}

case ${1:-} in
up | down | clean | status) "$1" ;;
*) fail "usage: stack.sh up|down|clean|status" ;;
esac
