#!/usr/bin/env bash
# The concurrency models of core and runtime under loom: every interleaving with up to LOOM_MAX_PREEMPTIONS
# preemptions (default 3; 2 is much quicker). They build into a target folder of their own.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3}
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"

log=$(mktemp "${TMPDIR:-/tmp}/heddle-models.XXXXXX")
trap 'rm -f "$log"' EXIT
for package in heddle-core heddle; do
    cargo test -p "$package" --release --lib --target-dir "${CARGO_TARGET_DIR:-target}/loom" "$@" | tee "$log"
    # A job that finds no models must not pass.
    if ! grep -Eq 'test result: ok\. [1-9][0-9]* passed' "$log"; then
        echo "models: no model of $package ran" >&2
        exit 1
    fi
done
