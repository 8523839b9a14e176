# Python's tools, each in a directory of its own: no package of the system or of the user changes. To be sourced.
#
#   make_venv DIR   makes DIR a place for packages; Debian keeps what makes one in a package apart, installed if it can be
# shellcheck shell=bash

# shellcheck source=dev/lib/apt.sh
source "${BASH_SOURCE[0]%/*}/apt.sh"

make_venv() {
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || true
    python3 -m venv "$1" >&2
}
