# shellcheck shell=bash
# Background processes by pid file. Sourced, never run.
# A pid file holds "<pid> <start time in ticks since boot>": the pair names one process for good, so a recycled
# pid is never taken for ours. A zombie counts as gone: where pid 1 reaps late, `kill -0` would still succeed.

# identity PID: "PID START" of a process that exists and is not a zombie; nothing otherwise.
identity() {
    local line
    line=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    local -a field
    # The second field is the name in parentheses and may hold spaces: cut behind the last one.
    read -r -a field <<<"${line##*) }"
    case "${field[0]:-Z}" in Z | X) return 0 ;; esac
    echo "$1 ${field[19]}"
}

alive() { # PIDFILE
    local recorded pid
    recorded=$(cat "$1" 2>/dev/null) || return 1
    pid=${recorded%% *}
    [ -n "$pid" ] && [ "$(identity "$pid")" = "$recorded" ]
}

# spawn PIDFILE LOGFILE COMMAND...: starts it in its own session, without our input, output or locks.
spawn() {
    local pidfile=$1 logfile=$2
    shift 2
    mkdir -p "$(dirname "$pidfile")" "$(dirname "$logfile")"
    (
        # Descriptors above 2 may carry a lock or make's job server: a daemon must not keep them open.
        for descriptor in /proc/self/fd/*; do
            descriptor=${descriptor##*/}
            [ "$descriptor" -gt 2 ] && eval "exec $descriptor>&-"
        done 2>/dev/null
        exec setsid "$@" </dev/null >>"$logfile" 2>&1
    ) &
    identity $! >"$pidfile"
}

# stop_process PIDFILE SECONDS: TERM (postgres: INT, its fast shutdown), then KILL; returns when it is gone.
stop_process() {
    local pidfile=$1 seconds=${2:-15} signal=${3:-TERM} recorded pid tenths=0
    recorded=$(cat "$pidfile" 2>/dev/null) || return 0
    pid=${recorded%% *}
    if alive "$pidfile"; then
        kill -"$signal" "$pid" 2>/dev/null || true
        while [ "$(identity "$pid")" = "$recorded" ]; do
            sleep 0.1
            tenths=$((tenths + 1))
            [ "$tenths" -eq $((seconds * 10)) ] && kill -KILL "$pid" 2>/dev/null
        done
    fi
    rm -f "$pidfile"
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# await PIDFILE SECONDS COMMAND...: until the command succeeds. 1 = time is up, 2 = the process ended.
await() {
    local pidfile=$1 deadline=$((SECONDS + $2))
    shift 2
    until "$@" >/dev/null 2>&1; do
        alive "$pidfile" || return 2
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.1
    done
}
