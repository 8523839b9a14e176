# The queues that ./dev/bench peers compares Forebay with, in locked versions from their registries. To be sourced.
#
#   install_peers TARGET   installs them below TARGET, unless they are there, and exports their place as
#                          FOREBAY_BENCH_PEERS
# shellcheck shell=bash

# shellcheck source=dev/lib/node.sh
source "${BASH_SOURCE[0]%/*}/node.sh"
# shellcheck source=dev/lib/python.sh
source "${BASH_SOURCE[0]%/*}/python.sh"

install_peers() {
    local from=bench/peers to
    to=$(mkdir -p "$1/peers/python" && cd "$1/peers" && pwd) || return
    ensure_node || return
    npm_install_locked "$from/node" "$to/npm" || return
    if ! cmp -s "$from/python/requirements.txt" "$to/python/installed.txt"; then
        make_venv "$to/python" || return
        "$to/python/bin/pip" install --quiet --disable-pip-version-check \
            --requirement "$from/python/requirements.txt" >&2 || return
        cp "$from/python/requirements.txt" "$to/python/installed.txt"
    fi
    # A program looks for packages in its own directory.
    cp "$from"/node/*.mjs "$to/npm/"
    cp "$from"/python/*.py "$to/python/"
    cargo build --release --quiet --locked --manifest-path "$from/rust/Cargo.toml" --target-dir "$to/rust" || return
    export FOREBAY_BENCH_PEERS=$to
}
