#!/usr/bin/env bash
# Formatting, clippy, shellcheck, and the C and Python files of the project with warnings as errors.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

cargo fmt --all -- --check
# Undocumented unsafe blocks are among the workspace's lints (Cargo.toml), so this refuses them too.
cargo clippy --workspace --all-targets -- -D warnings

shellcheck -x .ci/run ci/*.sh capi/*.sh

for source in lab/experiments/*/*.c bench/programs/*.c ci/real/*.c sharing/patterns/*.c tests/stress/*.c tests/clock/*.c; do
    cc -std=gnu17 -O2 -Wall -Wextra -Werror -pthread -fopenmp -Ilab/programs -fsyntax-only "$source"
done
for source in bench/kernels/external/{openmp,pthread}/*.c; do
    cc -std=gnu17 -O2 -Wall -Wextra -Werror -pthread -fopenmp -I bench/kernels/external/common -fsyntax-only "$source"
done

# Parsed only: no byte code is left behind.
python3 - bench/figures bench/mixed-file ci/checks/*.py ci/glibc/*.py ci/real/*.py <<'END'
import ast, sys
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        ast.parse(file.read(), name)
END
echo "lint: clean"
