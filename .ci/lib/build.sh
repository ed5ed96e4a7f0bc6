#!/usr/bin/env bash
# Builds every program. The selection is the one of `make test`, so that both share every artefact: cargo resolves
# features over what is selected, and without a test target (here the smallest one) serde_json and 50 crates above it
# would be compiled once more for the tests.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$ROOT/.ci/lib/torch-env.sh"
exec cargo build --workspace --locked --bins --test architecture "$@"
