#!/usr/bin/env bash
# Random scripts of pthread operations, their outcome compared with NPTL's (tests/stress/ops.c).
#
#   ci/fuzz.sh [--short] [--seeds N] [--first SEED] [--workers N]
#
# 200 seeds of 1500 operations; --short: 8. Each operation's result must be NPTL's, step by step. Seeds on which NPTL
# itself crashes are counted and left out (glibc 2.36 follows a null pointer in a robust mutex that ended threads held).
# Needs a C compiler. Heddle is $HEDDLE_BIN, else target/release/heddle. Exit status: 0 all alike, 1 not, 2 usage.
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seeds=200 first=$((RANDOM << 15 | RANDOM)) workers=2 steps=1500
while (($#)); do
    case $1 in
    --short) seeds=8 ;;
    --seeds) seeds=${2:?--seeds needs a number} && shift ;;
    --first) first=${2:?--first needs a seed} && shift ;;
    --workers) workers=${2:?--workers needs a number} && shift ;;
    -h | --help) usage && exit 0 ;;
    *) refuse "unknown option $1; try --help" ;;
    esac
    shift
done

find_heddle
make_scratch
cc -std=gnu17 -O2 -pthread -o "$scratch/ops" "$root/tests/stress/ops.c"
alike=0 left_out=0 bad=0
for ((seed = first; seed < first + seeds; seed++)); do
    { timeout 60 "$scratch/ops" "$seed" "$steps" >"$scratch/nptl"; } 2>/dev/null || { left_out=$((left_out + 1)) && continue; }
    status=0
    { timeout 60 "$heddle" run --workers "$workers" -- "$scratch/ops" "$seed" "$steps" >"$scratch/heddle"; } 2>/dev/null || status=$?
    if [[ $status == 0 ]] && cmp -s "$scratch/nptl" "$scratch/heddle"; then
        alike=$((alike + 1))
    else
        bad=$((bad + 1))
        echo "FAILED: seed $seed: status $status; first difference (< NPTL, > Heddle):"
        { diff "$scratch/nptl" "$scratch/heddle" || true; } | sed -n '2,5s/^/    /p'
    fi
done
echo "fuzz: seeds from $first on: $alike alike, $bad different, $left_out left out"
((bad == 0 && alike > 0))
