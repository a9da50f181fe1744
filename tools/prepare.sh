#!/usr/bin/env bash
# Installs what building needs and this machine lacks: a C compiler, curl, a Rust toolchain; for `tests` the formatter,
# the linter and PostgreSQL too, for `cluster-ha` Patroni and etcd, for `fuzz` a C++ compiler. Changes nothing when all of it is there. For Debian and Ubuntu; on others
# it says what to install.
set -euo pipefail

# Oldest compiler that builds the dependencies; the same number stands in Cargo.toml (rust-version).
RUST_MIN=1.95

say() { printf 'prepare: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif have sudo; then sudo "$@"
    else fail "not root and no sudo; as root, run: $*"
    fi
}

apt_install() {
    have apt-get || fail "no apt-get here; install these with your package manager, then try again: $*"
    say "installing $*"
    if [ -z "${apt_updated:-}" ]; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
        apt_updated=1
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# True when the version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }

rust_fits() {
    have cargo && have rustc || return 1
    at_least "$(rustc --version | cut -d' ' -f2 | cut -d- -f1)" "$RUST_MIN"
}

missing=()
have cc || missing+=(gcc libc6-dev)
# libFuzzer is written in C++.
if [ "${1:-}" = fuzz ]; then have c++ || missing+=(g++); fi
if ! rust_fits && ! have rustup; then
    have curl || missing+=(curl)
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
fi
if [ ${#missing[@]} -gt 0 ]; then apt_install "${missing[@]}"; fi

if ! rust_fits; then
    if have rustup; then
        say "Rust $RUST_MIN or later is needed: rustup update stable"
        rustup toolchain install stable --profile minimal --component rustfmt --component clippy
        rustup default stable
    else
        say "Rust $RUST_MIN or later is needed: installing it with rustup into ${CARGO_HOME:-$HOME/.cargo}"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
            sh -s -- -y --profile minimal --default-toolchain stable --component rustfmt --component clippy --no-modify-path
    fi
    hash -r
    rust_fits || fail "there is still no Rust $RUST_MIN; see https://rustup.rs"
fi

# The tests want the formatter and the linter too, and a PostgreSQL of their own.
if [ "${1:-}" = tests ]; then
    if have apt-get && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then apt_install postgresql; fi
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 && continue
        have rustup || fail "cargo ${component/rustfmt/fmt} is missing; install it with the Rust toolchain"
        rustup component add "$component"
    done
fi

# Daemons, so only where somebody asks for them by name.
if [ "${1:-}" = cluster-ha ]; then
    if have apt-get && ! { have patroni && have etcd; }; then apt_install patroni python3-etcd etcd-server; fi
fi
