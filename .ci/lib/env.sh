# shellcheck shell=bash disable=SC2034
# Names and places shared by the scripts of this folder. Sourced, never run.
# After sourcing, the working directory is the repository root.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$ROOT" || exit

TORCH_VERSION=2.11.0
CACHE_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/plexforge"
TORCH_VENV="$CACHE_DIR/torch-$TORCH_VERSION"
TARGET_DIR="${CARGO_TARGET_DIR:-$ROOT/target}"
case $TARGET_DIR in /*) ;; *) TARGET_DIR="$ROOT/$TARGET_DIR" ;; esac
BIN_DIR="$TARGET_DIR/debug"
LOCAL_DIR="$ROOT/.local"

# A toolchain that rustup has just installed is not in the PATH of the shell that started make.
[ -d "$HOME/.cargo/bin" ] && case ":$PATH:" in
*":$HOME/.cargo/bin:"*) ;;
*) export PATH="$PATH:$HOME/.cargo/bin" ;;
esac

if [ -n "${CI:-}" ]; then
    export CARGO_TERM_COLOR=never CARGO_TERM_PROGRESS_WHEN=never NO_COLOR=1 NEXTEST_PROFILE=ci
fi

say() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
