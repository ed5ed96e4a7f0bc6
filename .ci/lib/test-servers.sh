#!/usr/bin/env bash
# The servers that tests share: one set per target folder, started by the first test that needs one and stopped
# by `make test`, `make test-servers-down`, or its watchdog after 20 idle minutes.
#   up DIR      start unless running; DIR/servers.env then holds the addresses
#   down DIR    stop
#   broker DIR PORT [MANAGEMENT-PORT]    become a RabbitMQ of one's own (the caller owns the process)
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$ROOT/.ci/lib/process.sh"
. "$ROOT/.ci/lib/servers.sh"

DIR=${2:-$TARGET_DIR/testkit}
IDLE_MINUTES=20

# Below the kernel's range for outgoing connections, so that no client socket sits on a port before its server.
free_base_port() {
    local base
    while :; do
        base=$((15000 + RANDOM % 1700 * 10))
        for offset in 0 1 2 3 4 5; do
            port_open $((base + offset)) && continue 2
        done
        echo "$base"
        return
    done
}

all_alive() {
    [ -f "$DIR/servers.env" ] && alive "$DIR/run/postgres.pid" && alive "$DIR/run/redis.pid" && alive "$DIR/run/rabbitmq.pid"
}

down() {
    rm -f "$DIR/servers.env"
    stop_process "$DIR/run/watchdog.pid" 2
    stop_servers "$DIR"
    remove_server_data "$DIR"
}

up() {
    all_alive && return 0
    down
    local base failed=0
    base=$(free_base_port)
    # fsync off: the data lives as long as the tests, and a killed server still finds it in the page cache.
    start_postgres "$DIR" "$base" fsync=off synchronous_commit=off full_page_writes=off &
    local postgres=$!
    start_redis "$DIR" $((base + 1)) &
    local redis=$!
    start_rabbitmq "$DIR" $((base + 2)) $((base + 5)) || failed=1
    wait "$postgres" || failed=1
    wait "$redis" || failed=1
    if [ "$failed" -ne 0 ]; then
        down
        exit 1
    fi
    {
        echo "TEST_DATABASE_URL=postgres://postgres@127.0.0.1:$base/postgres"
        echo "TEST_REDIS_URL=redis://127.0.0.1:$((base + 1))"
        echo "TEST_AMQP_URL=amqp://guest:guest@127.0.0.1:$((base + 2))/%2f"
        echo "TEST_AMQP_MANAGEMENT_URL=http://guest:guest@127.0.0.1:$((base + 5))"
    } >"$DIR/servers.env.tmp"
    mv "$DIR/servers.env.tmp" "$DIR/servers.env"
    spawn "$DIR/run/watchdog.pid" "$DIR/log/watchdog.log" "$ROOT/.ci/lib/test-servers.sh" watch "$DIR"
}

# Users of the servers touch servers.env. When it is gone or old, the servers go. Their pids are kept in memory:
# the folder may have been removed with the whole target folder.
watch() {
    local -a pids=()
    local pidfile
    for pidfile in "$DIR"/run/{rabbitmq,epmd,redis,postgres}.pid; do
        pids+=("$(cat "$pidfile")")
    done
    while [ -n "$(find "$DIR/servers.env" -mmin -$IDLE_MINUTES 2>/dev/null)" ]; do
        sleep 15
    done
    rm -f "$DIR/run/watchdog.pid"
    [ ! -d "$DIR/run" ] || flock "$DIR/lock" "$ROOT/.ci/lib/test-servers.sh" down-locked "$DIR" || true
    local recorded
    for recorded in "${pids[@]}"; do
        if [ "$(identity "${recorded%% *}")" = "$recorded" ]; then kill -KILL "${recorded%% *}"; fi
    done
}

locked() {
    mkdir -p "$DIR/log" "$DIR/run"
    exec 9>"$DIR/lock"
    flock -w 180 9 || fail "another process holds $DIR/lock for minutes"
}

case ${1:-} in
up) locked && up ;;
down) [ ! -d "$DIR" ] || { locked && down; } ;;
down-locked) down ;;
watch) watch ;;
broker)
    rabbitmq_environment "$DIR" "$3" "${4:-}"
    exec "${RABBITMQ[@]}"
    ;;
*) fail "usage: test-servers.sh up|down|watch|broker DIR …" ;;
esac
