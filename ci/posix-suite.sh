#!/usr/bin/env bash
# The POSIX test suite as Debian packages it (source package posixtestsuite): each of its programs on
# NPTL, and those that pass there under `heddle run`.
#
#   ci/posix-suite.sh [--short] [--thread] [--only PATTERN]... [--workers N] [--jobs N] [--cache DIR] [--list]
#
# A test is lost if it passes on NPTL and not under Heddle, alone, in at least two of three more
# runs; one that fails there once is unsteady, which is told but does not count. --short takes a
# subset of some 90 tests and ends within 60 s. --thread runs them with one more sleeping
# thread, so that Heddle is at work also where the test itself has one thread. PATTERN is a shell
# pattern of names as --list prints them, such as '*/sem_*'. --cache DIR keeps source and programs;
# without it they go to a temporary folder. The suite's source comes through apt, which needs a
# deb-src line, and is never part of this project. Heddle is $HEDDLE_BIN, else
# target/release/heddle. Exit status: 0 none lost, 1 some, 2 usage or no suite.
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

short='' thread='' list='' cache='' workers=2 jobs=2 limit=60 only=()
while (($#)); do
    case $1 in
    --short) short=yes limit=15 jobs=8 ;; # they sleep most of the time
    --thread) thread=yes ;;
    --list) list=yes ;;
    --only) only+=("${2:?--only needs a pattern}") && shift ;;
    --workers) workers=${2:?--workers needs a number} && shift ;;
    --jobs) jobs=${2:?--jobs needs a number} && shift ;;
    --cache) cache=${2:?--cache needs a folder} && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done

find_heddle
for tool in cc timeout setpriv; do
    command -v "$tool" >/dev/null || refuse "$tool is not installed"
done

make_scratch
mkdir -p "${cache:=$scratch/cache}"
cache=$(realpath "$cache")
export LC_ALL=C

# --- the suite ----------------------------------------------------------------------------------

suite() {
    compgen -G "$cache/posixtestsuite-*/conformance" | head -n 1
}

if [[ -z $(suite) ]]; then
    command -v dpkg-source >/dev/null || refuse "dpkg-source is not installed (package dpkg-dev)"
    (cd "$cache" && apt-get -q source posixtestsuite) >"$scratch/fetched" 2>&1 ||
        refuse "apt cannot fetch the source of posixtestsuite: is there a deb-src line? ($(tail -n 1 "$scratch/fetched"))"
fi
suite=$(dirname "$(suite)")

# A name is a source file without `.c`; `NAME,ARGUMENT` is the same program with an argument.
names() {
    local file line
    cd "$suite"
    # What sets the clock or needs a hand is left out; so are plots of how times scale, which have
    # no right answer.
    grep -rlE '\bmain *\(' --include='*.c' conformance functional stress |
        grep -vE 'buildonly|/testfrmw\.c|/threads_scenarii\.c|stress/threads/helper\.c|stress/threads/.*/s-c[0-9]*\.c' |
        sed 's/\.c$//' |
        while read -r file; do
            case $file in
            stress/semaphores/* | stress/mqueues/* | functional/semaphores/sem_lock) echo "$file,20" ;;
            *) echo "$file" ;;
            esac
        done
    # Scripts that call a program with a number.
    while IFS=: read -r file line; do
        echo "${file%/*}/$(sed -E 's/.*\/([^/]*)\.test ([0-9]+).*/\1,\2/' <<<"$line")"
    done < <(grep -rE 'core-buildonly\.test [0-9]' --include='*.sh' conformance)
}

# What --short takes: the first two tests of each of these.
threads='create|join|detach|exit|cancel|testcancel|kill|sigmask|once|key_create|cond_signal|cond_wait'
threads+='|mutex_unlock|mutex_trylock|spin_lock|getcpuclockid|cleanup_push'
threads+='|cleanup_pop|setcancelstate|setcanceltype'
others='sem_wait|sem_post|sem_timedwait|sigaction|sigwait|sigwaitinfo|sigtimedwait|sigqueue|sigsuspend|sigpending'
others+='|sigprocmask|sigaltstack|raise|kill|fork|timer_create|timer_settime|nanosleep|clock_nanosleep|mq_send'
others+='|mq_receive|mq_notify|aio_read|aio_write|aio_error|lio_listio|sched_yield|sched_getparam|mmap|munmap'

in_short() {
    [[ $1 =~ ^conformance/interfaces/(pthread_($threads)|$others)/[12]-1$ && $1 != */timer_settime/2-1 ]]
}

plan() {
    local name pattern
    names | sort -u | while read -r name; do
        if [[ -n $short ]] && ! in_short "$name"; then continue; fi
        if ((${#only[@]} == 0)); then echo "$name" && continue; fi
        for pattern in "${only[@]}"; do
            # shellcheck disable=SC2053 # a pattern is meant
            if [[ $name == $pattern ]]; then echo "$name" && break; fi
        done
    done
}

plan >"$scratch/plan"
if [[ -n $list ]]; then
    cat "$scratch/plan"
    exit 0
fi
[[ -s $scratch/plan ]] || refuse "no test has such a name"

export suite cache scratch heddle workers limit

# build NAME: what does not compile is told in the count, as the suite is older than the compiler.
build() {
    local source=${1%,*}
    local program=$cache/bin/$source
    if [[ -x $program ]]; then return; fi
    mkdir -p "${program%/*}"
    (
        cd "$suite/${source%/*}"
        # Some forget headers that others of libc's included once.
        for more in "" "-include signal.h -include fcntl.h"; do
            # shellcheck disable=SC2086 # words
            cc -std=gnu99 -O1 -g -w -D_GNU_SOURCE $more -pthread -I"$suite/include" \
                -I"$suite/functional/threads/include" "${source##*/}.c" -o "$program.$$" -lrt -lm &&
                mv "$program.$$" "$program" && break
        done
    ) >"$program.log" 2>&1 || true
}
export -f build
sed 's/,.*//' "$scratch/plan" | sort -u | xargs -P "$(nproc)" -I{} bash -c 'build {}'

if [[ -n $thread ]]; then
    cat >"$scratch/thread.c" <<'END'
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static void *sleeper(void *unused) {
    (void)unused;
    for (;;)
        pause();
}

__attribute__((constructor)) static void start(void) {
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_create(&thread, &attributes, sleeper, 0);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, 0);
}
END
    cc -O1 -shared -fPIC -pthread "$scratch/thread.c" -o "$scratch/thread.so"
    thread=$scratch/thread.so
fi
export thread

# --- running ------------------------------------------------------------------------------------

# run nptl|heddle NAME: the status; what was said is in $scratch/said.NUMBER.
run() {
    local name=$2 status=0 folder
    local -a command=("$cache/bin/${name%,*}") prefix=()
    if [[ $name == *,* ]]; then command+=("${name#*,}"); fi
    if [[ $1 == heddle ]]; then prefix=("$heddle" run --workers "$workers" --); fi
    if [[ -n $thread ]]; then prefix=(env LD_PRELOAD="$thread" "${prefix[@]}"); fi
    # Nobody's clock is to be set.
    if ((EUID == 0)); then prefix=(setpriv --bounding-set=-sys_time "${prefix[@]}"); fi
    folder=$(mktemp -d "$scratch/run.XXXXXX")
    cd "$folder"
    case $name in
    # These run until they are told to end.
    stress/threads/*) prefix=(timeout --preserve-status -s USR1 -k 20 6 "${prefix[@]}") ;;
    *) prefix=(timeout -k 2 "$limit" "${prefix[@]}") ;;
    esac
    "${prefix[@]}" "${command[@]}" >"$folder.said" 2>&1 </dev/null || status=$?
    said=$(tail -n 1 "$folder.said" | tr -cd '[:print:]' | cut -c 1-120)
    cd "$scratch"
    rm -rf "$folder" "$folder.said"
    return "$status"
}

# both NAME: one line, `NAME NPTL HEDDLE SAID`; `-` where it was not run.
both() {
    local name=$1 nptl=0 on_heddle=0
    if [[ ! -x $cache/bin/${name%,*} ]]; then echo "$name none - -" && return; fi
    run nptl "$name" || nptl=$?
    if ((nptl != 0)); then echo "$name $nptl - -" && return; fi
    run heddle "$name" || on_heddle=$?
    echo "$name 0 $on_heddle $said"
}
export -f run both

echo "running $(wc -l <"$scratch/plan") tests" >&2
xargs -P "$jobs" -I{} bash -c 'both {}' <"$scratch/plan" >"$scratch/results"

lost=0 unsteady=0
while read -r name _ status said; do
    nptl=0 on_heddle=0
    for _ in 1 2 3; do
        run nptl "$name" || nptl=$((nptl + 1))
        run heddle "$name" || { status=$? && on_heddle=$((on_heddle + 1)); }
    done
    if ((on_heddle >= 2 && nptl == 0)); then
        lost=$((lost + 1))
        echo "lost: $name: status $status: $said"
    elif ((on_heddle > 0 || nptl == 0)); then
        unsteady=$((unsteady + 1))
        echo "unsteady: $name: fails $on_heddle of 3 times, on NPTL $nptl: $said"
    fi
done < <(awk '$2 == 0 && $3 != 0' "$scratch/results")

awk -v lost="$lost" -v unsteady="$unsteady" '
    { tests++ }
    $2 == "none" { unbuilt++ }
    $2 == "0" { pass++ }
    END {
        printf "%d tests, %d do not compile here; %d pass on NPTL, %d of them under Heddle, %d lost (%d unsteady)\n",
            tests, unbuilt, pass, pass - lost, lost, unsteady
    }' "$scratch/results"
if [[ -n ${POSIX_SUITE_RESULTS:-} ]]; then cp "$scratch/results" "$POSIX_SUITE_RESULTS"; fi
((lost == 0))
