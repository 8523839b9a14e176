# The part of ./dev/check that is quick enough to run all the time. To be sourced by it.
#
#   check_fast   format, lints, the kernel's tests, and those of crates with uncommitted changes
#
# shellcheck shell=bash

check_fast() {
    ensure_lints
    ensure_nextest
    step "format" cargo fmt --all --check
    step "lints" cargo clippy --workspace --all-targets --locked -- -D warnings
    step "the kernel's tests" cargo nextest run -p forebay-kernel -p forebay-supabase --locked
    local packages=()
    mapfile -t packages < <(changed_packages)
    if ((${#packages[@]})); then
        step "tests of what changed" ./dev/test "${packages[@]}" --locked --no-tests=pass
    fi
    steps_done
}

# `-p NAME` for each crate with uncommitted changes. Not the pure ones, whose tests have run, nor the binary's, which take minutes.
changed_packages() {
    local crate
    git status --porcelain -- crates | sed -E 's|^.. "?crates/([^/"]+)/.*|\1|' | sort -u | while IFS= read -r crate; do
        case $crate in
        kernel | supabase | app) ;;
        *) printf '%s\n' -p "forebay-$crate" ;;
        esac
    done
}
