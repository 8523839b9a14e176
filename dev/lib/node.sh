# Node, and the packages from npm that tests drive the service with. To be sourced.
#
#   ensure_node       installs Node and npm if they are missing and it can
#   npm_install_locked FROM TO   installs the packages of FROM/package-lock.json into TO, unless they are already there,
#                     without running their scripts
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
        echo "Node 20 or later with npm is missing: install it" >&2
        return 1
    fi
}

npm_install_locked() {
    if cmp -s "$1/package-lock.json" "$2/installed.json"; then
        return
    fi
    mkdir -p "$2"
    cp "$1/package.json" "$1/package-lock.json" "$2/"
    (cd "$2" && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error >&2) || return
    cp "$1/package-lock.json" "$2/installed.json"
}

test_node_start() {
    ensure_node || return
    export FOREBAY_TEST_NPM=$PWD/target/npm
    npm_install_locked crates/app/tests/realtime target/npm
}
