#!/usr/bin/env bash
# From a fresh machine to a trained, served and evaluated model: set-up, build, stack, and the main job through the
# public API. Later runs find everything in place and only do the job.
set -euo pipefail
. "$(dirname "$0")/env.sh"

started=$SECONDS
step() { # WHAT COMMAND...
    say "$1"
    shift
    "$@"
}
step "set-up" "$ROOT/.ci/lib/setup.sh"
step "build (some minutes on the first run)" "$ROOT/.ci/lib/build.sh"
step "stack" "$ROOT/.ci/lib/stack.sh" up
. "$LOCAL_DIR/client.env"
say "the main job, through the REST API"
if ! "$BIN_DIR/ppx" demo "$@"; then
    for log in "$LOCAL_DIR"/log/{gateway,datagen,tts,align,dataset,trainer,inference,evaluation}.log; do
        if problems=$(grep -E '"level":"(ERROR|WARN)"|ERROR|panicked' "$log" 2>/dev/null | tail -n 5) && [ -n "$problems" ]; then
            printf -- '--- %s\n%s\n' ".local/log/$(basename "$log")" "$problems" >&2
        fi
    done
    fail "the demo did not finish" "the stack still runs; all logs are in .local/log" \
        "\`make demo\` tries again, \`make down\` stops the stack"
fi
note "API key  $PPX_API_KEY"
note "           (kept in .local/secrets.env; \`. .local/client.env\` sets it for ppx)"
say "done in $((SECONDS - started)) s; \`make down\` stops the stack, \`make clean-local\` removes its data"
