#!/usr/bin/env bash
# Real programs under `heddle run`, their results compared with NPTL's.
#
#   ci/real-programs.sh [--short] [--only NAME]... [--workers N] [--list]
#
# Every program must give the right result, end in time, and take at most 3 times NPTL's wall time
# plus 1 s, in one of three tries: a program that passes at a fraction of its speed has failed. A missing
# tool is a failure too. --short ends within about 90 s; without it everything is larger and repeated.
# Heddle is $HEDDLE_BIN, else target/release/heddle. Exit status: 0 all passed, 1 not, 2 usage.
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
real=$root/ci/real

checks=(engaged xz zstd pigz pbzip2 http python openmp git sort curl ripgrep)
size=60 loops=5 cheap=20 limit=240 workers=2 # cheap: repetitions of checks that take a second
only=()

while (($#)); do
    case $1 in
    --short) size=12 loops=1 cheap=3 limit=60 ;;
    --only) only+=("${2:?--only needs a name}") && shift ;;
    --workers) workers=${2:?--workers needs a number} && shift ;;
    --list) printf '%s\n' "${checks[@]}" && exit 0 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done

find_heddle

for name in "${only[@]}"; do known check "$name" "${checks[@]}"; done

make_scratch
server_pid=
cleanup() {
    if [[ -n $server_pid ]]; then kill "$server_pid" 2>/dev/null || true; fi
    rm -rf "$scratch"
}
trap cleanup EXIT

ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
export LC_ALL=C

# --- helpers for the checks ---------------------------------------------------------------------

fail() {
    echo "$*" >&2
    exit 1
}

need() {
    local tool
    for tool; do
        command -v "$tool" >/dev/null || fail "$tool is not installed"
    done
}

# clocked nptl|heddle COMMAND...: runs it as it is and adds its wall time to that column.
clocked() {
    local column=$1 start end status=0
    shift
    start=${EPOCHREALTIME/./}
    timeout -k 2 "$limit" "$@" || status=$?
    end=${EPOCHREALTIME/./}
    echo $((end - start)) >>"$scratch/time.$column"
    if ((status == 124 || status == 137)); then fail "$column: no end within $limit s: $(shortened "$@")"; fi
    if ((status != 0)); then fail "$column: status $status: $(shortened "$@")"; fi
}

shortened() {
    local words=$*
    words=${words//"$heddle run --workers $workers -- "/}
    words=${words//"$scratch/"/}
    echo "${words:0:150}"
}

# on nptl|heddle COMMAND...: the same, under Heddle for that column.
on() {
    if [[ $1 == heddle ]]; then
        clocked heddle "$heddle" run --workers "$workers" -- "${@:2}"
    else
        clocked "$@"
    fi
}

# same FILE FILE WHAT
same() {
    cmp -s "$1" "$2" || fail "$3 differ"
}

python=
find_python() {
    need python3
    # The interpreter itself: python3 may be a wrapper script.
    python=$(python3 -c 'import sys; print(sys.executable)')
}

mixed_file() {
    need python3
    if [[ ! -e $scratch/mixed ]]; then "$root/bench/mixed-file" "$scratch/mixed" "$size"; fi
}

# --- the checks; each runs in a shell of its own ------------------------------------------------

# packs TOOL OPTION...: compress under both, unpack under both, all against the original.
packs() {
    local tool=$1 column i
    shift
    need "$tool" cmp
    mixed_file
    for ((i = 0; i < loops; i++)); do
        for column in nptl heddle; do
            on "$column" "$tool" "$@" -c "$scratch/mixed" >"$scratch/packed.$column"
        done
        same "$scratch/packed.nptl" "$scratch/packed.heddle" "$tool's compressed files"
        for column in nptl heddle; do
            on "$column" "$tool" -d "$@" -c <"$scratch/packed.heddle" >"$scratch/unpacked"
            same "$scratch/unpacked" "$scratch/mixed" "$column: what $tool unpacked and the original"
        done
        # And through pipes on both sides.
        on heddle "$tool" "$@" -c < <(cat "$scratch/mixed") | cat >"$scratch/packed.pipe"
        on nptl "$tool" -d -c <"$scratch/packed.pipe" >"$scratch/unpacked"
        same "$scratch/unpacked" "$scratch/mixed" "what $tool packed from a pipe and the original"
        on nptl "$tool" "$@" -c <"$scratch/mixed" >/dev/null # keeps the two columns alike
        on heddle "$tool" -d "$@" -c <"$scratch/packed.nptl" | cmp -s - "$scratch/mixed" ||
            fail "heddle: what $tool unpacked into a pipe and the original differ"
    done
}

# The other checks prove little if the threads are the kernel's after all: 200 parked threads are
# 200 kernel threads on NPTL and a handful under Heddle.
check_engaged() {
    find_python
    local column tasks
    for column in nptl heddle; do
        on "$column" "$python" -c '
import threading
gate = threading.Event()
threads = [threading.Thread(target=gate.wait) for _ in range(200)]
for thread in threads:
    thread.start()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("Threads:")))
gate.set()
for thread in threads:
    thread.join()
' >"$scratch/tasks.$column"
    done
    tasks=$(<"$scratch/tasks.nptl")
    ((tasks >= 200)) || fail "nptl: only $tasks kernel threads"
    tasks=$(<"$scratch/tasks.heddle")
    ((tasks <= 50)) || fail "heddle: 200 threads are $tasks kernel threads: Heddle is not at work"
}

check_xz() { packs xz -1 -T8; }
check_zstd() { packs zstd -q -9 -T8; }
check_pigz() { packs pigz -n -p8; }
check_pbzip2() { packs pbzip2 -p8; }

check_http() {
    find_python
    local i column protocol clients
    mkdir -p "$scratch/www"
    for i in {1..40}; do head -c $((i * 1500)) /dev/urandom >"$scratch/www/file$i"; done
    for ((i = 0; i < loops; i++)); do
        for protocol in 1.0 1.1; do
            for clients in 64 256; do
                for column in nptl heddle; do
                    local -a prefix=()
                    if [[ $column == heddle ]]; then prefix=("$heddle" run --workers "$workers" --); fi
                    # The client is always plain; it starts the server, so the time is both.
                    clocked "$column" "$python" "$real/http_load.py" "$scratch/www" $((limit - 20)) \
                        "$clients" 10 "HTTP/$protocol" -- "${prefix[@]}" "$python" -u "$real/http_server.py" 0 \
                        --bind 127.0.0.1 --protocol "HTTP/$protocol" --directory "$scratch/www" >"$scratch/answers"
                    [[ $(<"$scratch/answers") == "$((clients * 10))" ]] || fail "$column: answers are missing"
                done
            done
        done
    done
}

check_python() {
    find_python
    local i column scale=$((loops > 1 ? 4 : 2))
    for ((i = 0; i < cheap; i++)); do
        for column in nptl heddle; do
            on "$column" "$python" "$real/threads.py" "$scale" >"$scratch/out.$column"
        done
        same "$scratch/out.nptl" "$scratch/out.heddle" "the outputs of threads.py"
    done
}

check_openmp() {
    need cc
    local column i
    cc -O2 -fopenmp "$real/openmp.c" -o "$scratch/openmp" || fail "openmp.c does not compile"
    for ((i = 0; i < cheap; i++)); do
        for column in nptl heddle; do
            on "$column" "$scratch/openmp" 10 >"$scratch/out.$column"
        done
        same "$scratch/out.nptl" "$scratch/out.heddle" "the outputs of openmp.c"
    done
}

objects_packed() {
    git -C "$1" count-objects -v | sed -n 's/^in-pack: //p'
}

check_git() {
    need git python3
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
    local column i commits=$((loops > 1 ? 1500 : 400)) expected
    git init -q --bare "$scratch/repo"
    python3 "$real/make_repo.py" "$commits" | git -C "$scratch/repo" fast-import --quiet
    expected=$(objects_packed "$scratch/repo")
    ((expected > commits * 3)) || fail "the repository has only $expected objects"
    for ((i = 0; i < loops; i++)); do
        for column in nptl heddle; do
            rm -rf "$scratch/repo.$column"
            cp -r "$scratch/repo" "$scratch/repo.$column"
            on "$column" git -C "$scratch/repo.$column" repack -a -d -f -q --threads=8 --window=20
            git -C "$scratch/repo.$column" fsck --full --strict >"$scratch/fsck" 2>&1 ||
                fail "$column: git fsck: $(tail -n 1 "$scratch/fsck")"
            [[ $(objects_packed "$scratch/repo.$column") == "$expected" ]] || fail "$column: objects are missing"
            on "$column" git -C "$scratch/repo.$column" -c grep.threads=8 grep -c abc main >"$scratch/out.$column"
        done
        same "$scratch/out.nptl" "$scratch/out.heddle" "the outputs of git grep"
    done
}

check_sort() {
    need sort python3
    local column i lines=$((loops > 1 ? 5000000 : 2000000))
    python3 - "$lines" >"$scratch/lines" <<'END'
import random, sys
rng = random.Random(3)
for _ in range(int(sys.argv[1]) // 1000):
    print("\n".join("%x %d" % (rng.getrandbits(40), i) for i in range(1000)))
END
    for ((i = 0; i < loops; i++)); do
        for column in nptl heddle; do
            on "$column" sort --parallel=8 -S 512M "$scratch/lines" -o "$scratch/out.$column"
        done
        same "$scratch/out.nptl" "$scratch/out.heddle" "the sorted files"
        # From a pipe, numeric, with too little memory for one piece.
        for column in nptl heddle; do
            on "$column" sort --parallel=8 -S 8M -k2n -T "$scratch" < <(head -n 400000 "$scratch/lines") \
                >"$scratch/out.$column"
        done
        same "$scratch/out.nptl" "$scratch/out.heddle" "the files sorted from a pipe"
    done
}

check_curl() {
    need curl diff
    find_python
    local files=$((loops > 1 ? 400 : 150)) column i port wait
    mkdir -p "$scratch/served"
    for ((i = 0; i < files; i++)); do head -c $((i * 997 % 90000 + 1)) /dev/urandom >"$scratch/served/f$i"; done
    "$python" "$real/file_server.py" "$scratch/served" "$scratch/port" 2>/dev/null &
    server_pid=$!
    trap 'kill "$server_pid" 2>/dev/null' EXIT
    for ((wait = 0; wait < 200; wait++)); do
        if [[ -e $scratch/port ]]; then break; fi
        sleep 0.05
    done
    port=$(<"$scratch/port") || fail "the file server did not start"
    for ((i = 0; i < cheap; i++)); do
        for column in nptl heddle; do
            rm -rf "$scratch/fetched"
            # A name, not an address: curl resolves it in a thread.
            on "$column" curl --silent --show-error --no-progress-meter --fail --noproxy '*' --parallel --parallel-max 64 --create-dirs \
                --output "$scratch/fetched/f#1" "http://localhost:$port/f[0-$((files - 1))]"
            diff -rq "$scratch/served" "$scratch/fetched" >"$scratch/diff" || fail "$column: $(head -n 1 "$scratch/diff")"
        done
    done
}

check_ripgrep() {
    need rg python3 sort
    local column i files=$((loops > 1 ? 8000 : 2000))
    python3 - "$scratch/tree" "$files" <<'END'
import os, random, sys
rng = random.Random(5)
words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(3000)]
for number in range(int(sys.argv[2])):
    folder = f"{sys.argv[1]}/{number % 17}/{number % 23}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{number}.txt", "w", encoding="ascii") as file:
        for _ in range(60):
            file.write(" ".join(rng.choices(words, k=10)) + "\n")
END
    for ((i = 0; i < cheap; i++)); do
        for column in nptl heddle; do
            on "$column" rg --no-config --threads 8 --line-number 'ab[c-k]|x[yz]' "$scratch/tree" >"$scratch/found"
            sort "$scratch/found" >"$scratch/out.$column"
        done
        [[ -s $scratch/out.nptl ]] || fail "ripgrep found nothing"
        same "$scratch/out.nptl" "$scratch/out.heddle" "what ripgrep found"
    done
}

# --- running them -------------------------------------------------------------------------------

microseconds() {
    local sum=0 value
    if [[ -e $scratch/time.$1 ]]; then
        while read -r value; do sum=$((sum + value)); done <"$scratch/time.$1"
    fi
    echo "$sum"
}

show() {
    printf '%d.%02d s' $(($1 / 1000000)) $(($1 % 1000000 / 10000))
}

failures=0
printf '%-8s %-5s %10s %10s\n' program '' NPTL Heddle
for name in "${checks[@]}"; do
    if ((${#only[@]})) && [[ " ${only[*]} " != *" $name "* ]]; then continue; fi
    for tries in 1 2 3; do
        rm -f "$scratch"/time.*
        # Not in a condition: there the shell would not stop the check at its first error.
        set +e
        (
            set -e
            "check_$name"
        ) >"$scratch/log" 2>&1 </dev/null
        status=$?
        set -e
        nptl=$(microseconds nptl) on_heddle=$(microseconds heddle)
        # The machine may have been busy with something else for a while.
        if ((status != 0 || on_heddle <= 3 * nptl + 1000000)); then break; fi
    done
    reason=
    if ((status != 0)); then
        reason=$(grep -v '^[[:space:]]*$' "$scratch/log" | tail -n 1 || true)
        reason=${reason:-status $status}
    elif ((on_heddle > 3 * nptl + 1000000)); then
        reason="too slow: more than 3 times NPTL plus 1 s, $tries times"
    fi
    printf '%-8s %-5s %10s %10s  %s\n' "$name" "$([[ -z $reason ]] && echo pass || echo FAIL)" \
        "$(show "$nptl")" "$(show "$on_heddle")" "$reason"
    if [[ -n $reason ]]; then
        failures=$((failures + 1))
        # What was said before the last line.
        head -n -1 "$scratch/log" | tail -n 12 | sed 's/^/    | /'
    fi
done
if ((failures > 0)); then
    echo "$failures failed"
    exit 1
fi
echo "all passed"
