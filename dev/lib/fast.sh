# The part of ./dev/check that is quick enough to run all the time. To be sourced by it.
#
#   check_fast   format, lints, the kernel's tests, and those of what has uncommitted changes
#
# shellcheck shell=bash

check_fast() {
    ensure_lints
    ensure_nextest
    step "format" cargo fmt --all --check
    step "lints" cargo clippy --workspace --all-targets --locked -- -D warnings
    step "the kernel's tests" cargo nextest run -p forebay-kernel -p forebay-supabase --locked
    local packages=() modules
    mapfile -t packages < <(changed_packages)
    if ((${#packages[@]})); then
        step "tests of changed crates" ./dev/test "${packages[@]}" --locked --no-tests=pass
    fi
    modules=$(changed_app_tests)
    if [[ $modules ]]; then
        step "changed tests of the binary" ./dev/test -p forebay --locked --no-tests=pass -E "test(/^($modules)::/)"
    fi
    steps_done
}

# `-p NAME` for each crate with uncommitted changes, bench among them. Leaves out the pure crates, whose tests have
# already run, the binary, whose tests take minutes (`changed_app_tests`), and fuzz, which needs nightly.
changed_packages() {
    local crate
    changed crates bench | sed -E 's|^crates/||; s|/.*||' | sort -u | while IFS= read -r crate; do
        case $crate in
        kernel | supabase | app) ;;
        *) printf '%s\n' -p "forebay-$crate" ;;
        esac
    done
}

# The modules of the binary's tests with uncommitted changes, and those of its unit tests, as alternatives of a regular
# expression. Whatever changed in the binary, `tidy` is among them.
changed_app_tests() {
    local paths
    paths=$(changed crates/app)
    [[ $paths ]] || return 0
    sed -nE 's|^crates/app/tests/it/([^/.]+).*|\1|p; s|^crates/app/src/([^/.]+).*|\1|p' <<<"$paths" |
        sort -u | { cat; echo tidy; } | paste -sd '|'
}

# The files below these folders that differ from the last commit.
changed() {
    git status --porcelain --untracked-files=all -- "$@" | sed -E 's|^...||; s|.* -> ||; s|"||g'
}
