# Debian's packages. To be sourced.
#
#   apt_install NAME…   installs packages where there is apt-get and the right to use it
# shellcheck shell=bash

apt_install() {
    command -v apt-get >/dev/null || return
    local -a apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
    if ((EUID != 0)) && command -v sudo >/dev/null; then
        apt=(sudo "${apt[@]}")
    fi
    # Output is for people: ours may be read by a program.
    "${apt[@]}" update >&2 && "${apt[@]}" install -y "$@" >&2
}
