# PostgreSQL for development: find or install it, and run a throwaway cluster for tests. To be sourced.
#
#   ensure_postgres      sets PG_BIN to the directory of initdb and postgres; installs them if it can
#   test_cluster_start   starts a private cluster and exports FOREBAY_TEST_DATABASE_URL, and FOREBAY_TEST_SHARED: a
#                        directory for a server that tests share, which the first of them starts there
#   test_cluster_stop    stops and removes both; harmless if there is none
#
# Each may be called twice. The caller stops the cluster: trap test_cluster_stop EXIT
# shellcheck shell=bash

# shellcheck source=dev/lib/apt.sh
source "${BASH_SOURCE[0]%/*}/apt.sh"

readonly PG_OLDEST_MAJOR=15

ensure_postgres() {
    find_postgres && return
    echo "installing PostgreSQL…" >&2
    if apt_install postgresql && find_postgres; then
        return
    fi
    echo "PostgreSQL is missing: install version 15 or later (Debian: apt-get install postgresql)," \
        "or pass --database-url" >&2
    return 1
}

test_cluster_start() {
    if [[ -n ${TEST_CLUSTER_DIR:-} ]]; then
        return
    fi
    ensure_postgres || return
    remove_abandoned_test_clusters
    local dir
    # Under /tmp, so that the socket's path is short and the server's user can access it.
    dir=$(mktemp -d "/tmp/forebay-test-$$-XXXXXXXX") || return
    if ((EUID == 0)); then
        chown postgres: "$dir" || return
    fi
    TEST_CLUSTER_DIR=$dir
    if ! run_as_server "$PG_BIN/initdb" -D "$dir/pg" -U forebay -A trust -E UTF8 --locale=C.UTF-8 \
        --no-sync --no-instructions >"$dir/log" 2>&1 ||
        ! run_as_server "$PG_BIN/pg_ctl" -D "$dir/pg" -l "$dir/pg/log" -w -s -t 60 start \
            -o "-c listen_addresses= -c port=5432 -c unix_socket_directories=$dir -c unix_socket_permissions=0700" \
            -o "-c fsync=off -c full_page_writes=off -c synchronous_commit=off" \
            -o "-c max_connections=300 -c jit=off -c max_wal_size=4GB" >>"$dir/log" 2>&1; then
        cat "$dir/log" "$dir/pg/log" >&2 2>/dev/null
        test_cluster_stop
        return 1
    fi
    export FOREBAY_TEST_DATABASE_URL="postgresql:///postgres?host=$dir&user=forebay" FOREBAY_TEST_SHARED=$dir/shared
}

test_cluster_stop() {
    if [[ -z ${TEST_CLUSTER_DIR:-} ]]; then
        return
    fi
    remove_test_cluster "$TEST_CLUSTER_DIR"
    unset TEST_CLUSTER_DIR FOREBAY_TEST_DATABASE_URL FOREBAY_TEST_SHARED
}

remove_test_cluster() {
    local pid
    # What tests left running: crates/app/tests/it/support/shared.rs writes the file.
    while IFS= read -r pid; do
        if [[ $(ps -o comm= -p "$pid" 2>/dev/null) == forebay ]]; then
            kill -9 "$pid" 2>/dev/null || true
        fi
    done < <(cat "$1/shared/pids" 2>/dev/null)
    # Its data needs no checkpoint. A missing server is not a failure.
    run_as_server "$PG_BIN/pg_ctl" -D "$1/pg" -w -s -m immediate stop >/dev/null 2>&1 || true
    rm -rf -- "$1"
}

# Clusters whose caller (its pid is in the directory's name) was killed before it could stop them.
remove_abandoned_test_clusters() {
    local dir pid user=postgres
    if ((EUID != 0)); then
        user=$(id -un)
    fi
    while IFS= read -r dir; do
        pid=${dir#/tmp/forebay-test-}
        pid=${pid%%-*}
        if ! kill -0 "$pid" 2>/dev/null; then
            remove_test_cluster "$dir" </dev/null
        fi
    done < <(find /tmp -maxdepth 1 -type d -name 'forebay-test-[0-9]*-*' -user "$user" 2>/dev/null)
}

# Searches the same places as the service: only FOREBAY_PG_BIN if set, else the newest in PATH and in the usual package
# directories. Keeps the result of an earlier call.
find_postgres() {
    if [[ -n ${PG_BIN:-} && -x $PG_BIN/initdb ]]; then
        return
    fi
    PG_BIN=
    local dir major newest=0 on_path
    local -a dirs=()
    if [[ -n ${FOREBAY_PG_BIN:-} ]]; then
        dirs=("$FOREBAY_PG_BIN")
    else
        if on_path=$(command -v postgres); then
            dirs+=("$(dirname "$(readlink -f "$on_path")")")
        fi
        dirs+=(/usr/lib/postgresql/*/bin /usr/pgsql-*/bin)
        dirs+=({/opt/homebrew,/usr/local,/home/linuxbrew/.linuxbrew}/opt/postgresql*/bin)
    fi
    for dir in "${dirs[@]}"; do
        [[ -x $dir/initdb && -x $dir/postgres ]] || continue
        major=$("$dir/postgres" --version | sed -nE 's/.*\(PostgreSQL\) ([0-9]+).*/\1/p')
        if ((${major:-0} >= PG_OLDEST_MAJOR && major > newest)); then
            newest=$major PG_BIN=$dir
        fi
    done
    [[ -n $PG_BIN ]]
}

# PostgreSQL refuses to run as root. Runs in a directory that the server's user may read, without the environment
# variables that change the server (PGPORT, PGOPTIONS, PGDATA).
run_as_server() {
    local -a prefix=(env -i PATH="$PATH" LC_ALL=C)
    if ((EUID == 0)); then
        prefix+=(setpriv --reuid=postgres --regid=postgres --clear-groups)
    fi
    (cd / && exec "${prefix[@]}" "$@")
}
