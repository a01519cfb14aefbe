#!/usr/bin/env bash
# Makes system calls fail, one at a time, under a program that uses a little of everything.
#
#   ci/faults.sh [--short] [--only CALL]... [--list]
#
# For each call that the runtime makes and each error the kernel may give, every N-th such call of a kernel
# thread fails once, for N = 1, 2, ... until there is no such call. The program must do all its work, or name
# a call that returned an error POSIX allows, or not be started (status 125 to 127, with a reason). Crashes,
# wrong results and hangs are failures. --short tries a few N. Needs strace and a C compiler. Heddle is
# $HEDDLE_BIN, else target/release/heddle. Exit status: 0 all passed, 1 not, 2 usage.
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# call:error; calls of the loader and of libc are hit too, which does no harm.
faults=(
    mmap:ENOMEM mprotect:ENOMEM munmap:ENOMEM madvise:EINVAL madvise:EAGAIN mremap:ENOMEM
    clone:EAGAIN clone3:EAGAIN fork:EAGAIN wait4:EINTR
    epoll_create1:EMFILE eventfd2:EMFILE timerfd_create:EMFILE timerfd_settime:EINVAL epoll_ctl:ENOMEM epoll_ctl:ENOSPC
    epoll_wait:EINTR epoll_pwait2:EINTR epoll_pwait2:ENOSYS
    fcntl:EMFILE fcntl:EINVAL pidfd_open:EMFILE pidfd_open:ENOSYS openat:EMFILE poll:EINTR nanosleep:EINTR
    read:EINTR read:EIO preadv2:EOPNOTSUPP pwritev2:EOPNOTSUPP getsockopt:ENOBUFS recvfrom:ENOMEM sendto:ENOBUFS
    sigaltstack:ENOMEM prlimit64:EPERM sched_getaffinity:EINVAL sysinfo:EFAULT futex:EINTR prctl:EINVAL
    rseq:ENOSYS set_robust_list:ENOSYS get_robust_list:EPERM pipe2:EMFILE getrandom:ENOSYS sched_yield:ENOSYS
)
short=0 only=()
while (($#)); do
    case $1 in
    --short) short=1 ;;
    --only) only+=("${2:?--only needs a call}") && shift ;;
    --list) printf '%s\n' "${faults[@]}" && exit 0 ;;
    -h | --help) usage && exit 0 ;;
    *) refuse "unknown option $1; try --help" ;;
    esac
    shift
done

find_heddle
command -v strace >/dev/null || refuse "needs strace; install Debian's package of that name"

make_scratch
cc -std=gnu17 -O2 -pthread -o "$scratch/modest" "$root/tests/stress/modest.c"

runs=0 hit=0 bad=0
# try CALL ERROR N: one run; false if no call was hit.
try() {
    local status=0
    { # The shell's own word on how it ended is not wanted.
        timeout -s TERM 20 strace -f -qq -o "$scratch/trace" -e "trace=execve,$1" -e "inject=$1:error=$2:when=$3" \
            "$heddle" run --workers 2 -- "$scratch/modest" >"$scratch/out" 2>&1 || status=$?
    } 2>/dev/null
    runs=$((runs + 1))
    grep -q INJECTED "$scratch/trace" || return 1
    hit=$((hit + 1))
    case $status in
    0) grep -qx "done" "$scratch/out" && return 0 ;;
    3) grep -q '^refused: ' "$scratch/out" && return 0 ;;
    125 | 126 | 127) [[ -s $scratch/out ]] && return 0 ;;
    esac
    # The dynamic loader does not survive the failure of its first mapping; that is none of ours.
    if grep -B1 INJECTED "$scratch/trace" | grep -q 'execve('; then return 0; fi
    bad=$((bad + 1))
    echo "FAILED: $1 number $3 fails with $2: status $status; last lines:"
    tail -n 3 "$scratch/out" | sed 's/^/    /'
}

for fault in "${faults[@]}"; do
    call=${fault%:*} error=${fault#*:}
    if ((${#only[@]})) && [[ " ${only[*]} " != *" $call "* ]]; then continue; fi
    if ((short)); then
        for n in 1 3; do try "$call" "$error" "$n" || break; done
    else
        # Kernel threads have few calls each; main has most. Gaps between early calls are real: go on a little.
        for ((n = 1, misses = 0; misses < 3 && n < 200; n++)); do
            if try "$call" "$error" "$n"; then misses=0; else misses=$((misses + 1)); fi
        done
    fi
done
echo "faults: $runs runs, $hit with a failing call, $bad failed"
((bad == 0))
