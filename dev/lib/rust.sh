# Rust's tools for development: find them, and install what is missing. To be sourced.
#
#   ensure_cargo     puts cargo on PATH if it is where rustup puts it
#   ensure_lints     rustfmt and clippy
#   ensure_nextest   cargo-nextest, built from source the first time (a few minutes)
#   ensure_deny      cargo-deny, likewise
#
# shellcheck shell=bash

ensure_cargo() {
    # cargo may be installed but not on PATH, because only login shells read rustup's profile.
    local bin=${CARGO_HOME:-$HOME/.cargo}/bin
    if [[ :$PATH: != *:$bin:* ]]; then
        PATH=$PATH:$bin
    fi
    if ! command -v cargo >/dev/null; then
        echo "cargo is missing: install Rust from https://rustup.rs" >&2
        return 1
    fi
}

ensure_lints() {
    ensure_cargo || return
    local tool
    for tool in fmt clippy; do
        if ! cargo "$tool" --version >/dev/null 2>&1; then
            echo "installing cargo $tool…" >&2
            rustup component add "${tool/#fmt/rustfmt}" || return
        fi
    done
}

ensure_nextest() {
    ensure_cargo || return
    if ! cargo nextest --version >/dev/null 2>&1; then
        echo "installing cargo-nextest, once…" >&2
        # Without its self-update, which takes most of the build time.
        cargo install --locked cargo-nextest --no-default-features --features default-no-update || return
    fi
}

ensure_deny() {
    ensure_cargo || return
    if ! cargo deny --version >/dev/null 2>&1; then
        echo "installing cargo-deny, once…" >&2
        cargo install --locked cargo-deny || return
    fi
}
