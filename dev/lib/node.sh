# Node, and the packages from npm that tests drive the service with. To be sourced.
#
#   ensure_node       installs Node and npm where they are missing and it can
#   test_node_start   installs the locked packages below target/, once, without running their scripts, and exports
#                     FOREBAY_TEST_NPM, where they are
# shellcheck shell=bash

# shellcheck source=dev/lib/apt.sh
source "${BASH_SOURCE[0]%/*}/apt.sh"

ensure_node() {
    if command -v node >/dev/null && command -v npm >/dev/null; then
        return
    fi
    apt_install nodejs npm || true
    if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
        echo "install Node 20 or later with npm" >&2
        return 1
    fi
}

test_node_start() {
    ensure_node || return
    local of=crates/app/tests/realtime to=target/npm
    export FOREBAY_TEST_NPM=$PWD/$to
    if cmp -s "$of/package-lock.json" "$to/installed.json"; then
        return
    fi
    mkdir -p "$to"
    cp "$of/package.json" "$of/package-lock.json" "$to/"
    (cd "$to" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2) || return
    cp "$of/package-lock.json" "$to/installed.json"
}
