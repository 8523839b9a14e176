# Steps of a longer script: a header each, how long it took, and a clear last line. To be sourced.
#
#   step NAME COMMAND…   runs a step; a failing one ends the script
#   steps_done           prints that all steps succeeded
#
# shellcheck shell=bash

STEP=start
SECONDS=0
trap steps_ended EXIT

step() {
    STEP=$1
    shift
    local from=$SECONDS
    printf '\n== %s (after %s)\n' "$STEP" "$(duration "$from")"
    "$@"
    printf '== %s: ok in %s\n' "$STEP" "$(duration $((SECONDS - from)))"
}

steps_done() {
    STEP=
    printf '\n%s: all good in %s\n' "$(script_name)" "$(duration "$SECONDS")"
}

steps_ended() {
    local code=$?
    if [[ -n $STEP ]]; then
        # On stdout like the headers, so that the last line of a log of stdout says what happened.
        printf '\n%s: FAILED at "%s" after %s\n' "$(script_name)" "$STEP" "$(duration "$SECONDS")"
    fi
    exit "$code"
}

duration() {
    if (($1 < 60)); then
        printf '%d s' "$1"
    else
        printf '%d min %d s' $(($1 / 60)) $(($1 % 60))
    fi
}

script_name() {
    printf 'dev/%s' "$(basename "$0")"
}
