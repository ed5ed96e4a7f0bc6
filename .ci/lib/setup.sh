#!/usr/bin/env bash
# Installs what a fresh Debian or Ubuntu lacks: packages, the Rust toolchain, the Python environment with libtorch.
# Says what it installs; everything present is left alone, so a second run takes a moment.
# With the argument `test` also what only the checks need.
set -euo pipefail
. "$(dirname "$0")/env.sh"

# cmake and g++ compile libopus, sentencepiece and the torch bindings; flite is the offline voice, pocketsphinx-en-us the
# acoustic model and dictionary of the aligner.
PACKAGES=(
    ca-certificates curl make cmake g++ python3 python3-venv
    postgresql redis-server rabbitmq-server flite
    pocketsphinx-en-us
)

missing_packages() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}

install_packages() {
    if ! have dpkg-query || ! have apt-get; then
        note "not a Debian system: please provide: ${PACKAGES[*]}"
        return
    fi
    local -a missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    local -a root=()
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || fail "these Debian packages are missing and there is no sudo: ${missing[*]}" \
            "as root: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
        root=(sudo)
    fi
    say "installing Debian packages: ${missing[*]}"
    note "(Debian may start its own database servers on their usual ports; Plexforge uses private ones on others)"
    local -a apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    "${root[@]}" "${apt[@]}" update >/dev/null
    "${root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >"$LOCAL_DIR/log/apt.log" 2>&1 ||
        { tail -n 20 "$LOCAL_DIR/log/apt.log" >&2; fail "apt-get install failed; all of its output: .local/log/apt.log"; }
}

install_rust() {
    if ! have cargo; then
        local installer=rustup-init
        if ! have rustup-init; then
            say "installing Rust with rustup into $HOME/.cargo"
            installer=$(mktemp)
            curl --proto '=https' --tlsv1.2 -fsS https://sh.rustup.rs -o "$installer" ||
                fail "the Rust installer could not be fetched" "install rustup by hand (https://rustup.rs), then run this again"
            installer="sh $installer"
        fi
        $installer -y --no-modify-path --profile minimal --default-toolchain none >/dev/null
        export PATH="$PATH:$HOME/.cargo/bin"
    fi
    # With rustup, cargo is a proxy that resolves rust-toolchain.toml.
    if ! cargo --version >/dev/null 2>&1; then
        local channel
        channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
        say "installing the Rust toolchain $channel"
        rustup toolchain install "$channel" --profile minimal --component rustfmt --component clippy
    fi
    local wanted version
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    version=$(cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$wanted" "$version" | sort -V | head -n1)" = "$wanted" ] ||
        fail "cargo $version is too old: Plexforge needs Rust $wanted" "install rustup (https://rustup.rs); it picks the version from rust-toolchain.toml"
}

torch_works() {
    [ -x "$TORCH_VENV/bin/python" ] && "$TORCH_VENV/bin/python" - "$TORCH_VERSION" 2>/dev/null <<'PY'
import sys
import torch
sys.exit(not torch.__version__.startswith(sys.argv[1]))
PY
}

pip_install() {
    "$TORCH_VENV/bin/python" -m pip install --disable-pip-version-check --no-cache-dir -q -r requirements.txt ||
        fail "pip could not install requirements.txt into $TORCH_VENV"
}

# The marker holds the hash of the requirements it was made from. It is written last, so an environment whose
# installation was interrupted has none; the lock makes a second installer wait for the first.
install_torch() {
    local marker="$TORCH_VENV/.plexforge-complete" hash
    hash=$(sha256sum requirements.txt | cut -d' ' -f1)
    [ "$(cat "$marker" 2>/dev/null)" = "$hash" ] && return 0
    mkdir -p "$CACHE_DIR"
    (
        flock -n 9 || { say "another run is installing libtorch: waiting"; flock 9; }
        [ "$(cat "$marker" 2>/dev/null)" = "$hash" ] && exit 0
        if torch_works; then
            say "bringing $TORCH_VENV up to requirements.txt"
            pip_install
        else
            local free_gb
            free_gb=$(($(df -Pk "$CACHE_DIR" | awk 'NR==2{print $4}') / 1048576))
            [ "$free_gb" -ge 8 ] || fail "libtorch needs 8 GB in $CACHE_DIR, $free_gb GB are free" "free some space, or set XDG_CACHE_HOME to a larger disk"
            say "installing torch $TORCH_VERSION (carries libtorch) into $TORCH_VENV: 2.5 GB to fetch, once per user"
            python3 -m venv --clear "$TORCH_VENV"
            pip_install
            torch_works || fail "torch does not import from $TORCH_VENV" "see: $TORCH_VENV/bin/python -c 'import torch'"
        fi
        echo "$hash" >"$marker.tmp" && mv "$marker.tmp" "$marker"
    ) 9>"$TORCH_VENV.lock"
}

mkdir -p "$LOCAL_DIR/log"
# A second voice whose word times are known measures the aligner.
[ "${1:-}" = test ] && PACKAGES+=(espeak-ng)
if [ "${1:-}" = test ] && ! docker compose version >/dev/null 2>&1 && ! have docker-compose; then
    PACKAGES+=(docker-compose)
fi
install_packages "${PACKAGES[@]}"
install_rust
install_torch
