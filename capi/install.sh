#!/usr/bin/env bash
# Builds libheddle and installs it, with nothing but cargo, a C compiler and install(1).
#
#   capi/install.sh [--profile PROFILE] [--target-dir FOLDER] PREFIX
#
# PREFIX/include/heddle.h, PREFIX/lib/libheddle.so (and .so.0.1, .so.0.1.0), libheddle.a and pkgconfig/heddle.pc.
# DESTDIR, if set, is put before PREFIX where files are written, and nowhere in them.
#
# The shared library is made by link.sh from libheddle.a.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    echo "usage: capi/install.sh [--profile PROFILE] [--target-dir FOLDER] PREFIX" >&2
    exit 2
}

profile=release
target=${CARGO_TARGET_DIR:-$here/../target}
while (($# > 1)); do
    case $1 in
        --profile) profile=$2 ;;
        --target-dir) target=$2 ;;
        *) usage ;;
    esac
    shift 2
done
if (($# != 1)) || [[ $1 != /* ]]; then
    if (($# == 1)) && [[ $1 != -* ]]; then echo "install: the prefix must begin with /" >&2; fi
    usage
fi
prefix=$1
root=${DESTDIR:-}$prefix

"${CARGO:-cargo}" build --quiet --manifest-path "$here/Cargo.toml" --target-dir "$target" --profile "$profile"
built=$target/$profile
if [[ $profile == dev || $profile == test ]]; then built=$target/debug; fi

version=$(sed -n 's/^#define HEDDLE_VERSION_[A-Z]* \([0-9]*\)$/\1/p' "$here/include/heddle.h" | paste -sd .)
# What programs look for when they start.
name=$(sed -n 's/.*-soname,\(libheddle[.a-z0-9]*\)".*/\1/p' "$here/build.rs")

# What the archive needs besides (`rustc --print native-static-libs`).
libraries='-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc'

install -d "$root/include" "$root/lib/pkgconfig"
shared=libheddle.so.$version
"$here/link.sh" "$built/libheddle.a" "$root/lib/$shared"
ln -sf "$shared" "$root/lib/$name"
ln -sf "$name" "$root/lib/libheddle.so"
install -m 644 "$built/libheddle.a" "$root/lib/libheddle.a"
install -m 644 "$here/include/heddle.h" "$root/include/heddle.h"
cat >"$root/lib/pkgconfig/heddle.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: heddle
Description: User threads, fork-join and locks
Version: $version
Libs: -L\${libdir} -lheddle
Libs.private: $libraries
Cflags: -I\${includedir}
END
