#!/usr/bin/env bash
# The C library's own thread tests under `heddle run`, compared with NPTL.
#
#   ci/glibc-suite.sh [--short] [--only NAME]... [--workers N] [--source DIR] [--verbose] [--list]
#
# The tests are built from the source of the installed C library, fetched with apt (deb-src entries
# are needed) or found in DIR, against the installed library. A test is lost if it passes on NPTL
# and not under Heddle, alone, in at
# least two of three more runs; one that fails there once is unsteady, which is told but does not
# count. Source and builds are kept in
# ${XDG_CACHE_HOME:-~/.cache}/heddle-glibc-VERSION. --short runs one or two tests of each kind and
# takes about a minute once they are built; without it it is some 500 tests and half an hour.
# Heddle is $HEDDLE_BIN, else target/release/heddle. Exit status: 0 none lost, 1 some, 2 usage or
# no source.
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

source_tree='' options=()
while (($#)); do
    case $1 in
    --short | --verbose | --list) options+=("$1") ;;
    --only) options+=("$1" "${2:?--only needs a name}") && shift ;;
    --workers) options+=("$1" "${2:?--workers needs a number}") && shift ;;
    --source) source_tree=${2:?--source needs a folder} && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done

find_heddle
for tool in cc c++ ar python3 tar; do
    command -v "$tool" >/dev/null || refuse "$tool is not installed"
done

version=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
version=${version#glibc }
[[ -n $version ]] || refuse "the C library is not glibc"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/heddle-glibc-$version
mkdir -p "$cache"

if [[ -z $source_tree ]]; then
    source_tree=$cache/glibc-$version
    if [[ ! -e $source_tree/nptl/Makefile ]]; then
        command -v apt-get >/dev/null || refuse "no apt to fetch the source with: give it with --source"
        package=$(dpkg-query -W -f '${source:Version}' libc6)
        (cd "$cache" && apt-get source --download-only "glibc=$package") >"$cache/fetch.log" 2>&1 ||
            refuse "apt has no source of glibc $package: add a deb-src entry, or give the source with --source"
        tar -C "$cache" -xf "$cache"/glibc_"$version".orig.tar.*z
    fi
fi
[[ -e $source_tree/nptl/Makefile ]] || refuse "$source_tree is not glibc's source"
grep -q "\"$version\"" "$source_tree/version.h" || refuse "$source_tree is not the source of glibc $version"

exec python3 "$root/ci/glibc/suite.py" --source "$source_tree" --build "$cache/build" --heddle "$heddle" \
    ${options[@]+"${options[@]}"}
