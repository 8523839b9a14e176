# Python tools, each in its own directory, so that no package of the system or the user changes. To be sourced.
#
#   make_venv DIR   creates a virtual environment in DIR; installs Debian's package for that if it is missing and it can
# shellcheck shell=bash

# shellcheck source=dev/lib/apt.sh
source "${BASH_SOURCE[0]%/*}/apt.sh"

make_venv() {
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || true
    python3 -m venv "$1" >&2
}
