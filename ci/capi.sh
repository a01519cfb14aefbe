#!/usr/bin/env bash
# Where cargo-c is installed: that it installs the same files as capi/install.sh. What is in them is tested by
# `cargo test -p heddle-capi`.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

if ! cargo cinstall --version >/dev/null 2>&1; then
    echo "capi: cargo-c is not installed: not tried"
    exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo cinstall --release --package heddle-capi --prefix=/usr --libdir=lib --destdir="$scratch/cargo-c"
DESTDIR=$scratch/script capi/install.sh /usr
diff <(cd "$scratch/cargo-c" && find . | sort) <(cd "$scratch/script" && find . | sort)
cmp "$scratch"/{cargo-c,script}/usr/include/heddle.h
symbols() {
    nm -D --defined-only "$1" | sed -n 's/.* T \([a-z0-9_]*\).*/\1/p'
}
diff <(symbols "$scratch/cargo-c/usr/lib/libheddle.so") <(symbols "$scratch/script/usr/lib/libheddle.so")
capi/link.sh "$scratch/cargo-c/usr/lib/libheddle.a" "$scratch/cargo-c/usr/lib/libheddle.so.0.1.0"
nm -D "$scratch/cargo-c/usr/lib/libheddle.so" | grep -q ' heddle_start@@HEDDLE_0.1$' # or end here
echo "capi: cargo-c installs the same"
