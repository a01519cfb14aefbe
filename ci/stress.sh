#!/usr/bin/env bash
# Threads that live and die at random, for a long time (tests/stress/lives.c).
#
#   ci/stress.sh [--short] [--seconds N] [--seed N] [--workers N]
#
# Ten minutes; --short: 20 seconds. The seed is printed; the same seed makes the same decisions, though not the
# same interleaving. Nothing may hang, crash, come out wrong or leak. Needs a C compiler. Heddle is $HEDDLE_BIN,
# else target/release/heddle. Exit status: 0 passed, 1 not, 2 usage.
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seconds=600 seed=$((RANDOM << 15 | RANDOM)) workers=2
while (($#)); do
    case $1 in
    --short) seconds=20 ;;
    --seconds) seconds=${2:?--seconds needs a number} && shift ;;
    --seed) seed=${2:?--seed needs a number} && shift ;;
    --workers) workers=${2:?--workers needs a number} && shift ;;
    -h | --help) usage && exit 0 ;;
    *) refuse "unknown option $1; try --help" ;;
    esac
    shift
done

find_heddle
make_scratch
cc -std=gnu17 -O2 -g -pthread -o "$scratch/lives" "$root/tests/stress/lives.c"
status=0
timeout -k 10 $((seconds + 120)) "$heddle" run --workers "$workers" -- "$scratch/lives" "$seed" "$seconds" || status=$?
if ((status != 0)); then
    echo "stress: FAILED with status $status (124: it hung); again with --seed $seed --seconds $seconds --workers $workers"
    exit 1
fi
