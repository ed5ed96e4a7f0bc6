#!/usr/bin/env bash
# Half an hour of eight live calls at 12.5 frames a second against the engine, release build, tiny model: no frame may be
# missed and memory may grow by less than 1 MiB a minute. Prints the figures. Other lengths: PPX_SOAK_SECONDS=600 make soak.
# Wants the machine for itself.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. .ci/lib/torch-env.sh

export PPX_SOAK_SECONDS="${PPX_SOAK_SECONDS:-1800}"
exec cargo test --locked --release -p inference --test sessions -- --exact --nocapture \
    soak::eight_calls_in_real_time_miss_nothing_and_memory_stays_flat
