# shellcheck shell=bash
# What the scripts beside this one share; they source it. Sets: root, the project's folder; self, the script's name.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=$(basename "$0" .sh)

# The script's own description, down to its first line of code.
usage() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" | head -n -1
}

# refuse REASON...: ends the script; status 2: nothing was tested.
refuse() {
    echo "$self: $*" >&2
    exit 2
}

# Sets heddle: $HEDDLE_BIN, else target/release/heddle.
find_heddle() {
    heddle=${HEDDLE_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/heddle}
    [[ -x $heddle ]] || refuse "no heddle at $heddle; run \`cargo build --release\` or set HEDDLE_BIN"
    heddle=$(realpath "$heddle")
}

# Sets scratch: a folder that is gone when the script ends.
make_scratch() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/heddle-$self.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# known KIND NAME ALL...: refuses a name that is none of them.
known() {
    local kind=$1 name=$2
    shift 2
    [[ " $* " == *" $name "* ]] || refuse "no $kind called $name; there are: $*"
}
