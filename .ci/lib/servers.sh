# shellcheck shell=bash
# Private PostgreSQL, Redis and RabbitMQ from the distribution's packages. Sourced, never run; needs process.sh.
# Each server lives in one folder: <dir>/<server>/ for data and logs, <dir>/run/<server>.pid. Used by `make up`
# (.local) and by the test servers (target/testkit).

newest() { printf '%s\n' "$@" | sort -V | tail -n1; }

# start_server NAME PIDFILE LOG SECONDS READY-COMMAND -- COMMAND...
# Starts unless it runs. A start that ends early is repeated until the time is up: after a SIGKILL the old
# process can linger unreaped and hold its lock file or port for some seconds.
start_server() {
    local name=$1 pidfile=$2 log=$3 seconds=$4 ready=$5 result
    shift 6
    # shellcheck disable=SC2086 # the ready command is several words
    alive "$pidfile" && await "$pidfile" "$seconds" $ready && return 0
    local deadline=$((SECONDS + seconds))
    while :; do
        spawn "$pidfile" "$log" "$@"
        result=0
        # shellcheck disable=SC2086
        await "$pidfile" "$seconds" $ready || result=$?
        [ "$result" -eq 0 ] && return 0
        if [ "$result" -eq 1 ] || [ "$SECONDS" -ge "$deadline" ]; then
            stop_process "$pidfile" 5
            echo "error: $name did not start; the end of $log:" >&2
            tail -n 15 "$log" >&2 || true
            return 1
        fi
        sleep 1
    done
}

port_is_free() { # NAME PORT PIDFILE VARIABLE
    if ! alive "$3" && port_open "$2"; then
        echo "error: port $2, meant for $1, is in use by another program; choose one with $4=<port>" >&2
        return 1
    fi
}

# As root: the command as user postgres, which refuses to run as root. Otherwise: the command.
as_postgres() {
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"
    else
        "$@"
    fi
}

# Where the data goes: DIR/postgres, or a folder under /var/tmp when user postgres cannot reach DIR (a checkout
# under /root or another closed home).
postgres_home() { # DIR
    local dir=$1/postgres
    if [ "$(id -u)" -eq 0 ] && ! as_postgres test -x "$1"; then
        dir="/var/tmp/plexforge-$(id -u)-$(printf %s "$1" | sha256sum | cut -c1-12)"
        if [ -e "$dir" ] && [ "$(stat -c %U "$dir")" != postgres ]; then
            echo "error: $dir exists and does not belong to user postgres" >&2
            return 1
        fi
    fi
    mkdir -p "$dir"
    chmod 700 "$dir"
    [ "$(id -u)" -ne 0 ] || chown postgres: "$dir"
    echo "$dir"
}

start_postgres() { # DIR PORT [SETTING=VALUE...]
    local dir=$1 port=$2 home bin version
    shift 2
    port_is_free PostgreSQL "$port" "$dir/run/postgres.pid" PPX_POSTGRES_PORT || return 1
    home=$(postgres_home "$dir") || return 1
    bin=$(newest /usr/lib/postgresql/*/bin)
    version=$(as_postgres cat "$home/data/PG_VERSION" 2>/dev/null || true)
    [ -z "$version" ] || bin="/usr/lib/postgresql/$version/bin"
    if [ ! -x "$bin/postgres" ]; then
        echo "error: no $bin/postgres: run \`make setup\` (data of another version: \`make clean-local\`)" >&2
        return 1
    fi
    if [ -z "$version" ]; then
        # Into a second folder first: an interrupted initdb leaves nothing that looks complete.
        as_postgres rm -rf "$home/data.new"
        (cd "$home" && as_postgres "$bin/initdb" -D "$home/data.new" -A trust -U postgres -E UTF8 --locale=C.UTF-8 \
            --no-sync >"$dir/log/initdb.log" 2>&1) || { cat "$dir/log/initdb.log" >&2; return 1; }
        as_postgres mv "$home/data.new" "$home/data"
    fi
    local -a settings=()
    local setting
    for setting in "listen_addresses=127.0.0.1" "port=$port" "unix_socket_directories=" "max_connections=400" "$@"; do
        settings+=(-c "$setting")
    done
    local -a user=()
    [ "$(id -u)" -ne 0 ] || user=(setpriv --reuid=postgres --regid=postgres --init-groups --)
    start_server PostgreSQL "$dir/run/postgres.pid" "$dir/log/postgres.log" 30 \
        "$bin/pg_isready -q -h 127.0.0.1 -p $port" -- "${user[@]}" "$bin/postgres" -D "$home/data" "${settings[@]}"
}

# make_database PORT NAME: creates it unless it exists.
make_database() {
    local -a psql=(psql -q -X -A -t -h 127.0.0.1 -p "$1" -U postgres -d postgres -v ON_ERROR_STOP=1)
    [ "$("${psql[@]}" -c "SELECT 1 FROM pg_database WHERE datname = '$2'")" = 1 ] ||
        "${psql[@]}" -c "CREATE DATABASE \"$2\""
}

start_redis() { # DIR PORT
    local dir=$1 port=$2
    port_is_free Redis "$port" "$dir/run/redis.pid" PPX_REDIS_PORT || return 1
    mkdir -p "$dir/redis"
    start_server Redis "$dir/run/redis.pid" "$dir/log/redis.log" 15 "redis-cli -h 127.0.0.1 -p $port ping" -- \
        redis-server --port "$port" --bind 127.0.0.1 --dir "$dir/redis" --save '' --appendonly no --databases 4096
}

# rabbitmq_environment HOME PORT [MANAGEMENT-PORT]: writes the configuration, sets the array RABBITMQ. The
# distribution port is PORT+2, epmd's is PORT+1, so that sets on different ports never meet.
rabbitmq_environment() {
    local home=$1 port=$2 management=${3:-} server
    server=$(newest /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server)
    if [ ! -x "$server" ]; then
        echo "error: RabbitMQ is not installed: run \`make setup\`" >&2
        return 1
    fi
    mkdir -p "$home/home" "$home/mnesia" "$home/log"
    {
        echo "listeners.tcp.1 = 127.0.0.1:$port"
        echo "log.console = false"
        echo "log.file = $home/log/rabbitmq.log"
        echo "vm_memory_high_watermark.absolute = 512MB"
        echo "disk_free_limit.absolute = 200MB"
        [ -z "$management" ] || printf 'management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = %s\n' "$management"
    } >"$home/rabbitmq.conf"
    echo "[${management:+rabbitmq_management}]." >"$home/enabled_plugins"
    # RUNNING_UNDER_SYSTEMD makes the script become the Erlang machine instead of waiting for it as a child, so
    # the pid is the broker's. The packaged wrapper is bypassed: it insists on user rabbitmq and /var/lib.
    RABBITMQ=(env HOME="$home/home" ERL_EPMD_PORT=$((port + 1)) ERL_EPMD_ADDRESS=127.0.0.1
        RABBITMQ_NODENAME=ppx@localhost RABBITMQ_DIST_PORT=$((port + 2)) RABBITMQ_CONF_ENV_FILE=/dev/null
        RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" RABBITMQ_MNESIA_BASE="$home/mnesia" RABBITMQ_LOG_BASE="$home/log"
        RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins" RABBITMQ_PID_FILE="$home/pid"
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 2:2 +sbwt none" RUNNING_UNDER_SYSTEMD=1 "$server")
    EPMD=(env HOME="$home/home" epmd -port $((port + 1)) -address 127.0.0.1)
}

start_rabbitmq() { # DIR PORT [MANAGEMENT-PORT]
    local dir=$1 port=$2 management=${3:-}
    port_is_free RabbitMQ "$port" "$dir/run/rabbitmq.pid" PPX_RABBITMQ_PORT || return 1
    rabbitmq_environment "$dir/rabbitmq" "$port" "$management" || return 1
    # Started here, so that its pid is known; Erlang would start one that stays behind.
    start_server epmd "$dir/run/epmd.pid" "$dir/log/epmd.log" 10 "port_open $((port + 1))" -- "${EPMD[@]}" || return 1
    start_server RabbitMQ "$dir/run/rabbitmq.pid" "$dir/log/rabbitmq.log" 60 \
        "rabbitmq_answers $port $management" -- "${RABBITMQ[@]}"
}

rabbitmq_answers() { port_open "$1" && { [ -z "${2:-}" ] || port_open "$2"; }; }

stop_servers() { # DIR
    stop_process "$1/run/rabbitmq.pid" 20
    stop_process "$1/run/epmd.pid" 5
    stop_process "$1/run/redis.pid" 10
    stop_process "$1/run/postgres.pid" 20 INT
}

remove_server_data() { # DIR
    local home
    home=$(postgres_home "$1") && rm -rf "$home"
    rm -rf "$1/postgres" "$1/redis" "$1/rabbitmq"
}
