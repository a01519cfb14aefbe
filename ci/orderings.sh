#!/usr/bin/env bash
# Every atomic ordering but Relaxed has its reason beside it, and every `pairs:` tag two ends.
# The rules are at the top of checks/orderings.py; checks/orderings_test.py proves that it can fail.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

python3 ci/checks/orderings_test.py
python3 ci/checks/orderings.py core/src abi/src runtime/src capi/src sharing/src
