#!/usr/bin/env bash
# What the preload library may not contain. It runs inside other people's critical sections and on
# kernel threads without a libc identity, so it must not need libc, must not take over libc's names,
# and must not touch vector registers that belong to the thread it interrupted.
#
#   ci/symbols.sh [LIBRARY]
#
# Without LIBRARY: the newest one that `cargo build --release` left.
set -euo pipefail

if (($# > 0)); then set -- "$(realpath "$1")"; fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

newest_library() {
    local file newest=
    for file in "${CARGO_TARGET_DIR:-target}"/release/build/heddle-*/out/libheddle.so; do
        if [[ -e $file && (-z $newest || $file -nt $newest) ]]; then newest=$file; fi
    done
    printf '%s' "$newest"
}

library=${1:-$(newest_library)}
if [[ ! -f $library ]]; then
    echo "symbols: no library; run \`cargo build --release\` or name one" >&2
    exit 1
fi

readelf --file-header "$library" | grep -q 'DYN (Shared object file)' # or end here

problems=0
# refuse WHAT LINES: LINES must be empty.
refuse() {
    if [[ -n $2 ]]; then
        problems=$((problems + 1))
        printf '%s:\n' "$1"
        head -n 10 <<<"$2" | sed 's/^/    /'
    fi
}

refuse "undefined symbols (they would be bound to libc)" "$(
    nm --undefined-only "$library" 2>/dev/null
    nm --dynamic --undefined-only "$library" 2>/dev/null
)"
refuse "exported symbols (they would take over the program's)" \
    "$(nm --dynamic --defined-only "$library" 2>/dev/null | grep -v ' heddle_' || true)"
refuse "needed libraries" "$(readelf --dynamic --wide "$library" | grep -F '(NEEDED)' || true)"
refuse "text relocations" "$(readelf --dynamic --wide "$library" | grep -F 'TEXTREL' || true)"
refuse "thread-local storage" "$(readelf --program-headers --wide "$library" | grep -E '^ +TLS ' || true)"
refuse "memory that is writable and executable" \
    "$(readelf --program-headers --wide "$library" | grep -E '^ +(LOAD|GNU_STACK) .* RWE ' || true)"

# xmm0 to xmm15 are saved at every site; nothing wider is. (VEX-encoded instructions on xmm registers
# clear the upper halves, so they are refused too: their names start with v.)
disassembly=$(objdump --disassemble --no-show-raw-insn "$library")
if ! grep -q '<.*>:$' <<<"$disassembly"; then
    refuse "disassembly" "objdump shows no function"
fi
refuse "AVX or AVX-512 instructions" "$(
    awk '/>:$/ { name = $2 } /%[yz]mm[0-9]|%xmm(1[6-9]|2[0-9]|3[01])|\{%k[0-7]\}|%k[0-7]([^0-9]|$)|\tv[a-z0-9]+ .*%xmm|\tvzero/ {
        print name, $0 }' <<<"$disassembly"
)"

if ((problems > 0)); then
    echo "symbols: $problems problems in $library"
    exit 1
fi
echo "symbols: $library is clean"
