# shellcheck shell=bash
# What the scripts in ci/ share. Sourced from the root of the repository.

# Everything that is built or installed goes here; the repository itself stays clean.
target=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target/tools
export PATH="$tools/bin:$tools/python/bin:$PATH"

# say TEXT...: a line about what goes on, on stderr, so that a recipe's output stays its own.
say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

# fail TEXT...: ends the script.
fail() {
    say "error: $*"
    exit 1
}

# have COMMAND: it can be run.
have() {
    command -v "$1" >/dev/null 2>&1
}

# help_asked ARGUMENTS...: prints what the script says of itself at its top and ends it, if that is asked for.
help_asked() {
    case ${1:-} in
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    esac
}

# need_cargo: ends the script with advice where there is no Rust.
need_cargo() {
    have cargo || fail "cargo is not in PATH. Install Rust $(rust_version) or later, for example with rustup."
}

# need_compiler: ends the script with advice where there is no C compiler: tests of the C ABI leave themselves out
# without one.
need_compiler() {
    have cc || fail "cc is not in PATH, and the tests of the C ABI need it. Install a C compiler (Debian: gcc)."
}

# rust_version: the oldest Rust that builds the workspace, from Cargo.toml.
rust_version() {
    sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml
}

# pip_install PACKAGE: installs a package with its programs into target/tools/python.
pip_install() {
    have python3 || return 1
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check \
        --no-input --no-deps --only-binary :all: --upgrade --target "$tools/python" "$1" >&2
}

# cargo_install CRATE: builds a program from source into target/tools.
cargo_install() {
    cargo install --quiet --locked --root "$tools" "$1" >&2
}

# need_tests COMMAND... [-- WORDS...]: ends the script unless the words fit a test of the command, a run of test
# programs: what runs no test would look as if all had passed.
need_tests() {
    local command=() listed
    [[ " $* " == *" -- "* ]] || set -- "$@" --
    listed=$("$@" --list | sed -n 's/: test$//p') || exit
    [[ ! $listed ]] || return 0
    while [[ $1 != -- ]]; do
        command+=("$1")
        shift
    done
    shift
    listed=$("${command[@]}" -- --list | sed -n 's/^\(.*\): test$/    \1/p') || exit
    say "error: expected the name of a test or a part of it, got ${*:-${command[*]}}"
    [[ ! $listed ]] || printf 'The tests are:\n%s\n' "$listed" >&2
    exit 2
}

# step TITLE COMMAND...: says what runs, runs it, says how long it took. A failure ends the script. The command may be
# a function, which runs in a shell of its own: it ends at its first failure, and changes no variable out here.
step() {
    local title=$1 started=$SECONDS code
    shift
    printf '\n==> %s\n    %s\n' "$title" "$*"
    # Behind `||` or in an `if` the shell would go on after a failure within a function.
    set +o errexit
    (
        set -o errexit
        "$@"
    )
    code=$?
    set -o errexit
    if ((code != 0)); then
        printf '    FAILED: %s (exit %d, %d s)\n' "$title" "$code" "$((SECONDS - started))"
        exit "$code"
    fi
    printf '    ok: %s (%d s)\n' "$title" "$((SECONDS - started))"
}
