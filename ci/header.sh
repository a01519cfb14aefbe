#!/usr/bin/env bash
# capi/include/heddle.h is what the sources of capi/ make.
#
#   ci/header.sh            compare
#   ci/header.sh --update   make it anew
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

case "${1:-}" in
    '') ;;
    --update) export HEDDLE_UPDATE_HEADER=1 ;;
    *)
        echo "usage: ci/header.sh [--update]" >&2
        exit 2
        ;;
esac
cargo test --quiet --package heddle-capi --test header
echo "header: up to date"
