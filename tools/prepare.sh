#!/usr/bin/env bash
# Installs what building needs and this machine lacks: a C compiler, curl, a Rust toolchain; for `tests` the formatter,
# the linter and PostgreSQL too, for `cluster-ha` Patroni and etcd, for `watching` Prometheus, for `fuzz` a C++ compiler, for `dist` what makes packages. Changes nothing when all of it is there. For Debian and Ubuntu; on others
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

# promtool and Prometheus, to check what watches a server.
if [ "${1:-}" = watching ]; then
    if have apt-get && ! have promtool; then apt_install prometheus; fi
fi

# Daemons, so only where somebody asks for them by name.
if [ "${1:-}" = cluster-ha ]; then
    if have apt-get && ! { have patroni && have etcd; }; then apt_install patroni python3-etcd etcd-server; fi
    # The newest Patroni beside that of the distribution, with the system's Python: the user postgres runs it.
    newest=${CARGO_TARGET_DIR:-target}/patroni
    if ! "$newest/bin/patroni" --version >/dev/null 2>&1; then
        /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv
        say "installing Patroni 4 into $newest"
        mkdir -p "$(dirname "$newest")"
        if ! { /usr/bin/python3 -m venv "$newest" && "$newest/bin/pip" install --quiet --disable-pip-version-check 'patroni[etcd3]==4.1.5' 'psycopg[binary]==3.3.*'; } >&2; then
            say "no Patroni 4: PyPI does not give it"
            rm -rf "$newest"
        fi
    fi
fi

# What tools/dist.sh makes things with: targets of Rust, zig as the C compiler for both of them (from PyPI, into the target
# directory), builders of packages and images; helm when Go is there; and what tests/dist.py runs them with.
if [ "${1:-}" = dist ]; then
    missing=()
    have python3 || missing+=(python3)
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    python3 -c 'import yaml' 2>/dev/null || missing+=(python3-yaml)
    have rpmbuild || missing+=(rpm)
    have buildah || missing+=(buildah)
    have podman || missing+=(podman)
    have runc || missing+=(runc)
    have qemu-aarch64 || missing+=(qemu-user)
    have readelf || missing+=(binutils)
    have xz || missing+=(xz-utils)
    if [ ${#missing[@]} -gt 0 ]; then apt_install "${missing[@]}"; fi
    if have rustup; then rustup target add x86_64-unknown-linux-musl aarch64-unknown-linux-musl; fi
    tools=${CARGO_TARGET_DIR:-target}/dist-tools
    if ! have zig && ! "$tools/bin/python" -m ziglang version >/dev/null 2>&1; then
        say "installing zig into $tools"
        mkdir -p "$(dirname "$tools")"
        python3 -m venv "$tools"
        "$tools/bin/pip" install --quiet --disable-pip-version-check "ziglang==0.17.1"
    fi
    if ! have podman-compose && ! [ -x "$tools/bin/podman-compose" ]; then
        say "installing podman-compose into $tools"
        [ -d "$tools" ] || python3 -m venv "$tools"
        "$tools/bin/pip" install --quiet --disable-pip-version-check "podman-compose==1.6.0"
    fi
    if ! have helm; then
        if have go; then
            say "installing helm"
            go install helm.sh/helm/v3/cmd/helm@v3.19.0
        else
            say "helm is missing, and so is Go, which would build it: https://helm.sh"
        fi
    fi
fi
