# Private networks for tests. To be sourced.
#
#   ensure_networks   installs what creates one; if the system permits none, prints a warning and skips those tests
# shellcheck shell=bash
# shellcheck source=dev/lib/apt.sh
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

ensure_networks() {
    command -v ip >/dev/null && command -v unshare >/dev/null || apt_install iproute2 util-linux || true
    local -a enter=(unshare --net --mount)
    ((EUID == 0)) || enter=(unshare --user --map-root-user --net --mount)
    if ! "${enter[@]}" ip link set lo up 2>/dev/null; then
        echo "WARNING: this system permits no private network for tests, so these tests are SKIPPED:" \
            "forbidden addresses are never reached" >&2
        export FOREBAY_TEST_WITHOUT_NETWORKS=1
    fi
}
