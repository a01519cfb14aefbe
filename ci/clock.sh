#!/usr/bin/env bash
# Sets the system clock while threads wait for a time of it: forth and back by seconds, for a quarter of a second each time.
#
#   ci/clock.sh [--rounds N]
#
# The same program (tests/clock/set.c) on NPTL and under Heddle with 1, 2 and 4 workers must end well and print the same. Nothing else
# that looks at the time should run meanwhile, so it is no part of `cargo test`. Where the clock may not be set (that takes
# CAP_SYS_TIME) it says so and tests nothing. Needs a C compiler. Heddle is $HEDDLE_BIN, else target/release/heddle. Exit status: 0
# passed, or not run; 1 not passed, 2 usage.
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rounds=1
while (($#)); do
    case $1 in
    --rounds) rounds=${2:?--rounds needs a number} && shift ;;
    -h | --help) usage && exit 0 ;;
    *) refuse "unknown option $1; try --help" ;;
    esac
    shift
done

find_heddle
make_scratch
cc -std=gnu17 -O2 -Wall -Werror -pthread -o "$scratch/set" "$root/tests/clock/set.c"

if ! ahead=$("$scratch/set" offset); then
    echo "clock: not run: the clock may not be set here"
    exit 0
fi

# Sets the clock right if it is off by more than the runs need to set it back.
mend() {
    local off=$(($("$scratch/set" offset) - ahead))
    if ((off > 500000000 || off < -500000000)); then "$scratch/set" restore "$ahead"; fi
}
trap 'mend; rm -rf "$scratch"' EXIT

runs=0 bad=0
# try NAME COMMAND...
try() {
    local name=$1 status=0
    shift
    timeout -s KILL 30 "$@" >"$scratch/out" 2>&1 || status=$?
    mend
    runs=$((runs + 1))
    if [[ ! -e $scratch/expected ]]; then cp "$scratch/out" "$scratch/expected"; fi
    if ((status != 0)) || ! cmp -s "$scratch/out" "$scratch/expected"; then
        bad=$((bad + 1))
        echo "FAILED: $name: status $status; it printed:"
        sed 's/^/    /' "$scratch/out"
    fi
}

for ((round = 0; round < rounds; round++)); do
    try "on NPTL" "$scratch/set"
    for workers in 1 2 4; do
        try "with $workers workers" "$heddle" run --workers "$workers" -- "$scratch/set"
    done
done
echo "clock: $runs runs, $bad failed"
((bad == 0))
