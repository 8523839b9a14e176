# Debian's packages. To be sourced.
#
#   apt_install NAME…   installs packages, if apt-get exists and this user may use it
# shellcheck shell=bash

apt_install() {
    command -v apt-get >/dev/null || return
    local -a apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
    if ((EUID != 0)) && command -v sudo >/dev/null; then
        apt=(sudo "${apt[@]}")
    fi
    # To standard error: a program may read our standard output.
    "${apt[@]}" update >&2 && "${apt[@]}" install -y "$@" >&2
}
