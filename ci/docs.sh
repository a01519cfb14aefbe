#!/usr/bin/env bash
# The documentation builds without a warning, and the links in the Markdown files lead somewhere.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

python3 ci/checks/links.py .
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --workspace --no-deps --document-private-items
