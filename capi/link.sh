#!/usr/bin/env bash
# Makes the shared library with versioned symbols from the archive.
#
#   capi/link.sh ARCHIVE LIBRARY        as: capi/link.sh PREFIX/lib/libheddle.a PREFIX/lib/libheddle.so.0.1.0
#
# Not rustc's doing: it gives the linker a version script without names, and linkers take scripts of one kind or the
# other, or only the first (docs/design/009-c-interface.md).
set -euo pipefail

if (($# != 2)); then
    echo "usage: capi/link.sh ARCHIVE LIBRARY" >&2
    exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$(sed -n 's/.*-soname,\(libheddle[.a-z0-9]*\)".*/\1/p' "$here/build.rs")

# Never unloaded: threads run in it, and libraries point to it from the moment it has started.
"${CC:-cc}" -shared -o "$2" -Wl,--whole-archive "$1" -Wl,--no-whole-archive -Wl,--gc-sections -Wl,--strip-debug \
    -Wl,--version-script="$here/heddle.map" -Wl,-soname,"$name" -Wl,-z,relro,-z,now,-z,nodelete,-z,defs \
    -Wl,--as-needed -lgcc_s -lm -lc
