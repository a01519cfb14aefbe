#!/usr/bin/env bash
# Servers and large programs: NPTL and Heddle in turn, answers checked, throughput compared.
#
#   ci/servers.sh [--short] [--only NAME]... [--rounds N] [--workers N] [--list]
#
# Each round runs each program on both; what is printed are medians and their ratio (times and latencies: less is better).
# "CPU" is the ratio of the server's (or program's) CPU time for the same work, which other load on the machine changes
# less than throughput: a program with a hundred kernel threads takes more of a busy machine than one with two workers.
# The load comes from the same machine. A wrong answer, a server that does not start or does not end, and a missing tool
# are failures; throughput is for reading, but one tenth of NPTL's is a failure too. Needs (Debian): mariadb-server
# sysbench memcached redis-server nginx apache2 apache2-utils wrk stunnel4 libmicrohttpd-dev postgresql ffmpeg stress-ng
# openjdk-17-jdk-headless nodejs libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4. Services of theirs need not run.
# Heddle is $HEDDLE_BIN, else target/release/heddle. Exit status: 0 all passed, 1 not, 2 usage.
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
real=$root/ci/real

programs=(mariadb memcached redis nginx apache_worker apache_event stunnel mhd python postgresql ffmpeg stress_ng java
    node preloads)
rounds=3 seconds=5 workers="" only=() short=""

while (($#)); do
    case $1 in
    --short) short=1 rounds=1 seconds=2 ;;
    --only) only+=("${2:?--only needs a name}") && shift ;;
    --rounds) rounds=${2:?--rounds needs a number} && shift ;;
    --workers) workers=${2:?--workers needs a number} && shift ;;
    --list) printf '%s\n' "${programs[@]}" && exit 0 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done

find_heddle
for name in "${only[@]}"; do known program "$name" "${programs[@]}"; done

make_scratch
chmod 755 "$scratch"
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
# Below those that the kernel gives to clients.
port=$((20000 + $$ % 12000))

# --- helpers ------------------------------------------------------------------------------------

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

begun=0 spent_before=0
under=() # what stands before a program in the present column
server=

# serve COMMAND...: starts a server in the present column, and waits for $port.
serve() {
    # A shell's background jobs ignore SIGINT.
    env --default-signal=INT,QUIT "${under[@]}" "$@" >"$scratch/server.log" 2>&1 </dev/null &
    server=$!
    trap stop_hard EXIT
    local i
    for ((i = 0; i < 300; i++)); do
        if (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
        kill -0 "$server" 2>/dev/null || fail "the server ended: $(tail -n 1 "$scratch/server.log")"
        sleep 0.1
    done
    fail "the server does not listen: $(tail -n 1 "$scratch/server.log")"
}

# stop [SIGNAL] [STATUS]: asks the server to end, which it must do well and soon.
stop() {
    local i status=0
    kill "-${1:-TERM}" "$server" 2>/dev/null || true
    for ((i = 0; i < 300; i++)); do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    if ((i == 300)); then fail "the server does not end after SIG${1:-TERM}"; fi
    wait "$server" || status=$?
    server=
    ((status == ${2:-0})) || fail "the server ended with status $status"
}

stop_hard() {
    if [[ -n $server ]]; then kill -KILL "$server" 2>/dev/null || true; fi
}

# spent: CPU time of the server and its children, in ms.
spent() {
    local pid files=()
    for pid in "$server" $(ps -o pid= --ppid "$server" || true); do files+=("/proc/$pid/stat"); done
    cat "${files[@]}" 2>/dev/null | awk -v tick="$(getconf CLK_TCK)" '
        { sub(/.*\) /, ""); sum += $12 + $13 + $14 + $15 } END { print sum * 1000 / tick }'
}

# begin: what is noted next begins here.
begin() {
    begun=${EPOCHREALTIME/./} spent_before=$(spent)
}

# note LABEL VALUE UNIT: a rate since `begin`, with the server's CPU time for each, or another figure.
note() {
    [[ $2 =~ ^[0-9.]+$ ]] || fail "no figure for $1: ${2:0:80}"
    local cpu=${4:-}
    if [[ $3 != ms && -n $server ]]; then
        cpu=$(awk -v spent="$(spent)" -v before="$spent_before" -v us=$((${EPOCHREALTIME/./} - begun)) -v rate="$2" \
            'BEGIN { print (spent - before) * 1e9 / (rate * us) }')
    fi
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$cpu" >>"$scratch/values.$column"
}

# cpu_in_times: CPU time of the children that this shell had waited for, in ms.
cpu_in_times() {
    awk 'NR == 2 { split($1, u, /[ms]/); split($2, s, /[ms]/); print ((u[1] + s[1]) * 60 + u[2] + s[2]) * 1000 }' \
        "$scratch/times"
}

# timed LABEL COMMAND...: notes the wall time, under the present column.
timed() {
    local label=$1 start before end status=0
    shift
    times >"$scratch/times" && before=$(cpu_in_times)
    start=${EPOCHREALTIME/./}
    timeout -k 5 300 "${under[@]}" "$@" || status=$?
    end=${EPOCHREALTIME/./}
    ((status == 0)) || fail "status $status: ${*:0:6}"
    times >"$scratch/times"
    note "$label" "$(((end - start) / 1000))" ms "$(awk -v a="$before" -v b="$(cpu_in_times)" 'BEGIN { print b - a }')"
}

# once FILE: remembers an output of the first column, and compares those that follow.
once() {
    if [[ -e $scratch/expected.$2 ]]; then
        cmp -s "$1" "$scratch/expected.$2" || fail "$2 differs from NPTL's"
    else
        cp "$1" "$scratch/expected.$2"
    fi
}

www() {
    if [[ ! -e $scratch/www/big ]]; then
        mkdir -p "$scratch/www"
        head -c 10000 /dev/urandom >"$scratch/www/page"
        head -c 4000000 /dev/urandom >"$scratch/www/big"
    fi
}

# fetches URL-PREFIX: both files come as they are.
fetches() {
    local file
    for file in page big; do
        curl -sSk --noproxy '*' --max-time 30 "$1/$file" | cmp -s - "$scratch/www/$file" || fail "$file arrives changed"
    done
}

# wrk_rate CONNECTIONS URL
wrk_rate() {
    timeout 60 wrk -t1 -c"$1" -d"$seconds" --timeout 10 "$2" >"$scratch/wrk"
    ! grep -q 'Non-2xx\|timeout [1-9]' "$scratch/wrk" || fail "wrk: $(grep 'Non-2xx\|Socket' "$scratch/wrk" | tr '\n' ' ')"
    sed -n 's/^Requests\/sec: *//p' "$scratch/wrk"
}

find_python() {
    need python3
    python=$(python3 -c 'import sys; print(sys.executable)')
}

# --- the programs -------------------------------------------------------------------------------
# version_X prints the version, check_X says in a few words what is checked, run_X does one round in one column.

version_mariadb() { mariadbd --version | sed 's/.*Ver \([0-9.]*\).*/\1/'; }
check_mariadb() { echo "CHECK TABLE, checksums after parallel updates"; }
mariadb_serve() {
    serve mariadbd --no-defaults --user="$(id -un)" --datadir="$1" --socket="$scratch/my.sock" --port="$port" \
        --bind-address=127.0.0.1 --pid-file="$scratch/my.pid" --max-connections=2000 --innodb-buffer-pool-size=256M \
        --skip-log-bin --innodb-flush-log-at-trx-commit=2 --table-open-cache=4000 --thread-cache-size=600 \
        --back-log=1000 --max-prepared-stmt-count=200000
}
mariadb_bench() {
    local script=$1 threads=$2
    shift 2
    timeout 120 sysbench "$script" --db-driver=mysql --mysql-socket="$scratch/my.sock" --mysql-user=root \
        --mysql-db=sb --tables=4 --table-size=20000 --threads="$threads" --percentile=99 "$@" >"$scratch/sysbench" 2>&1 ||
        fail "sysbench $script: $(grep -m 1 FATAL "$scratch/sysbench")"
}
run_mariadb() {
    need mariadbd mariadb-install-db mariadb sysbench
    local threads i
    sql() { mariadb --no-defaults -uroot -S "$scratch/my.sock" -N "$@"; }
    if [[ ! -d $scratch/my.nptl ]]; then
        mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$scratch/my.nptl" --skip-test-db \
            --auth-root-authentication-method=normal >/dev/null 2>&1
        local under=()
        mariadb_serve "$scratch/my.nptl"
        sql -e 'create database sb'
        mariadb_bench oltp_read_write 2 prepare
        stop
        cp -r "$scratch/my.nptl" "$scratch/my.heddle"
    fi
    mariadb_serve "$scratch/my.$column"
    for threads in 16 128 512; do
        begin
        mariadb_bench oltp_point_select "$threads" --time="$seconds" run
        note "point select, $threads" "$(sed -n 's/.*transactions:.*(\([0-9.]*\) per.*/\1/p' "$scratch/sysbench")" tps
        note "point select, $threads, p99" "$(sed -n 's/.*99th percentile: *//p' "$scratch/sysbench")" ms
    done
    # What these do to the tables does not depend on their order; conflicts may end a transaction, which is tried again.
    local pids=()
    for i in {1..16}; do
        for ((k = 1; k <= 100; k++)); do
            echo "update sb.sbtest$((k % 4 + 1)) set k = k + $i, c = concat(left(c, 100), '$column' = '') where id = $((k * 37 + i));"
        done >"$scratch/updates.$i"
        sql <"$scratch/updates.$i" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || fail "an update failed"; done
    sql -e 'checksum table sb.sbtest1, sb.sbtest2, sb.sbtest3, sb.sbtest4' >"$scratch/checksums"
    once "$scratch/checksums" "mariadb.checksums.$round"
    if [[ $round == "$rounds" ]]; then # random from here on
        for threads in 16 128 512; do
            begin
            mariadb_bench oltp_read_write "$threads" --time="$seconds" --mysql-ignore-errors=all run
            note "read and write, $threads" "$(sed -n 's/.*transactions:.*(\([0-9.]*\) per.*/\1/p' "$scratch/sysbench")" tps
            note "read and write, $threads, p99" "$(sed -n 's/.*99th percentile: *//p' "$scratch/sysbench")" ms
        done
    fi
    sql -e 'check table sb.sbtest1, sb.sbtest2, sb.sbtest3, sb.sbtest4 extended' >"$scratch/tables"
    [[ $(grep -c 'status.OK' "$scratch/tables") == 4 ]] || fail "CHECK TABLE: $(head -n 1 "$scratch/tables")"
    stop
}

version_memcached() { memcached -V | sed 's/memcached //'; }
check_memcached() { echo "every value read"; }
run_memcached() {
    need memcached
    find_python
    serve memcached -u "$(id -un)" -l 127.0.0.1 -p "$port" -t 4 -m 128
    begin
    note "set and get, 100 connections" "$("$python" "$real/memcached_load.py" "$port" 100 "$seconds")" ops/s
    stop
}

version_redis() { redis-server --version | sed 's/.*v=\([0-9.]*\).*/\1/'; }
check_redis() { echo "counters after parallel increments"; }
run_redis() {
    need redis-server redis-benchmark redis-cli
    serve redis-server --port "$port" --save '' --io-threads 4 --io-threads-do-reads yes
    # Its I/O threads spin: with more of them than CPUs both columns are slow and noisy.
    local requests=$((seconds * 1000))
    local what
    for what in set get; do
        begin
        timeout 120 redis-benchmark -p "$port" -c 50 -n "$requests" -t "$what" --csv >"$scratch/redis"
        note "$what, 50 connections" "$(sed -n "s/^\"${what^^}\",\"\([0-9.]*\)\".*/\1/p" "$scratch/redis")" ops/s
    done
    timeout 120 redis-benchmark -p "$port" -c 20 -n 2000 incr counted >/dev/null
    [[ $(redis-cli -p "$port" get counted) == 2000 ]] || fail "increments are lost"
    stop
}

version_nginx() { nginx -v 2>&1 | sed 's/.*nginx\///'; }
check_nginx() { echo "files, aio threads"; }
run_nginx() {
    need nginx wrk curl
    www
    mkdir -p "$scratch/nginx"
    {
        if ((EUID == 0)); then echo "user root;"; fi
        echo "daemon off; worker_processes 1; pid $scratch/nginx/pid; error_log $scratch/nginx/error;"
        echo "thread_pool default threads=16;"
        echo "events { worker_connections 2048; }"
        echo "http { access_log off;"
        for kind in client_body proxy fastcgi uwsgi scgi; do echo "${kind}_temp_path $scratch/nginx/$kind;"; done
        echo "server { listen 127.0.0.1:$port; root $scratch/www; aio threads; sendfile off; output_buffers 2 64k; } }"
    } >"$scratch/nginx/conf"
    serve nginx -e "$scratch/nginx/error" -c "$scratch/nginx/conf"
    fetches "http://127.0.0.1:$port"
    begin
    note "10 kB, 64 connections" "$(wrk_rate 64 "http://127.0.0.1:$port/page")" req/s
    stop QUIT
}

version_apache_worker() { apache2 -v | sed -n 's/.*Apache\/\([0-9.]*\).*/\1/p'; }
version_apache_event() { version_apache_worker; }
check_apache_worker() { echo "files"; }
check_apache_event() { echo "files"; }
run_apache_worker() { apache worker; }
run_apache_event() { apache event; }
apache() {
    need apache2 wrk ab curl
    www
    mkdir -p "$scratch/apache"
    local modules=/usr/lib/apache2/modules
    cat >"$scratch/apache/conf" <<END
ServerRoot $scratch/apache
PidFile $scratch/apache/pid
ErrorLog $scratch/apache/error
Listen 127.0.0.1:$port
ServerName localhost
LoadModule mpm_$1_module $modules/mod_mpm_$1.so
LoadModule authz_core_module $modules/mod_authz_core.so
$(if ((EUID == 0)); then printf 'User www-data\nGroup www-data\n'; fi)
StartServers 2
ServerLimit 8
ThreadLimit 64
ThreadsPerChild 64
MaxRequestWorkers 256
MinSpareThreads 64
MaxSpareThreads 256
DocumentRoot $scratch/www
<Directory $scratch/www>
Require all granted
</Directory>
END
    serve apache2 -f "$scratch/apache/conf" -DFOREGROUND
    fetches "http://127.0.0.1:$port"
    begin
    note "10 kB, 128 connections" "$(wrk_rate 128 "http://127.0.0.1:$port/page")" req/s
    begin
    timeout 120 ab -q -c 64 -n $((seconds * 1500)) "http://127.0.0.1:$port/page" >"$scratch/ab" 2>&1
    grep -q 'Failed requests: *0$' "$scratch/ab" || fail "ab: $(grep Failed "$scratch/ab")"
    note "10 kB, a connection each, 64" "$(sed -n 's/^Requests per second: *\([0-9.]*\).*/\1/p' "$scratch/ab")" req/s
    stop
}

mhd_program() {
    if [[ ! -x $scratch/mhd_server ]]; then
        need cc
        cc -O2 "$real/mhd_server.c" -o "$scratch/mhd_server" -lmicrohttpd 2>"$scratch/cc" ||
            fail "mhd_server.c does not compile: $(head -n 1 "$scratch/cc")"
    fi
}

version_stunnel() { stunnel4 -version 2>&1 | sed -n 's/^stunnel \([0-9.]*\).*/\1/p'; }
check_stunnel() { echo "answers through TLS"; }
run_stunnel() {
    need stunnel4 openssl ab curl
    mhd_program
    local backend=$((port + 1)) plain
    if [[ ! -e $scratch/key.pem ]]; then
        openssl req -x509 -newkey rsa:2048 -nodes -keyout "$scratch/key.pem" -out "$scratch/cert.pem" -days 2 \
            -subj /CN=localhost 2>/dev/null
    fi
    cat >"$scratch/stunnel.conf" <<END
foreground = yes
pid =
[tls]
accept = 127.0.0.1:$port
connect = 127.0.0.1:$backend
cert = $scratch/cert.pem
key = $scratch/key.pem
END
    serve stunnel4 "$scratch/stunnel.conf"
    "$scratch/mhd_server" "$backend" &
    plain=$!
    # shellcheck disable=SC2064 # a local variable, gone when the trap comes
    trap "stop_hard; kill $plain" EXIT
    [[ $(curl -sSk --noproxy '*' --max-time 20 --retry 5 --retry-all-errors "https://127.0.0.1:$port/x") == "hello /x" ]] || fail "a wrong answer"
    begin
    timeout 120 ab -q -k -c 64 -n $((seconds * 1000)) "https://127.0.0.1:$port/x" >"$scratch/ab" 2>&1
    grep -q 'Failed requests: *0$' "$scratch/ab" || fail "ab: $(grep Failed "$scratch/ab")"
    note "64 connections, kept" "$(sed -n 's/^Requests per second: *\([0-9.]*\).*/\1/p' "$scratch/ab")" req/s
    begin
    timeout 120 ab -q -c 64 -n $((seconds * 100)) "https://127.0.0.1:$port/x" >"$scratch/ab" 2>&1
    grep -q 'Failed requests: *0$' "$scratch/ab" || fail "ab: $(grep Failed "$scratch/ab")"
    note "64 connections, a handshake each" "$(sed -n 's/^Requests per second: *\([0-9.]*\).*/\1/p' "$scratch/ab")" req/s
    stop TERM "${stunnel_status:-0}"
}

version_mhd() { echo '#include <microhttpd.h>' | cc -E -dM - | sed -n 's/#define MHD_VERSION 0x0*\(.*\)/\1/p'; }
check_mhd() { echo "answers"; }
run_mhd() {
    need wrk curl
    mhd_program
    serve "$scratch/mhd_server" "$port"
    [[ $(curl -sS --noproxy '*' --max-time 20 "http://127.0.0.1:$port/some/path") == "hello /some/path" ]] ||
        fail "a wrong answer"
    local connections
    for connections in 64 256; do
        begin
        note "$connections connections" "$(wrk_rate "$connections" "http://127.0.0.1:$port/x")" req/s
    done
    stop
}

version_python() { find_python && "$python" -c 'import platform; print(platform.python_version())'; }
check_python() { echo "files"; }
run_python() {
    need wrk curl
    find_python
    www
    serve "$python" -u "$real/http_server.py" "$port" --bind 127.0.0.1 --protocol HTTP/1.1 --directory "$scratch/www"
    fetches "http://127.0.0.1:$port"
    begin
    note "ThreadingHTTPServer, 256 connections" "$(wrk_rate 256 "http://127.0.0.1:$port/page")" req/s
    stop INT
}

version_postgresql() { "$(postgres_folder)/postgres" --version | sed 's/.*) \([0-9.]*\).*/\1/'; }
check_postgresql() { echo "pgbench's sums"; }
postgres_folder() {
    local folder
    for folder in /usr/lib/postgresql/*/bin; do :; done
    [[ -x $folder/postgres ]] || fail "postgres is not installed"
    echo "$folder"
}
run_postgresql() {
    local folder data=$scratch/pg.$column as=()
    folder=$(postgres_folder)
    # It refuses to run as root.
    if ((EUID == 0)); then as=(setpriv --reuid=postgres --regid=postgres --init-groups); fi
    if [[ ! -d $data ]]; then
        install -d ${as:+-o postgres} "$data"
        "${as[@]}" "$folder/initdb" -D "$data/data" >/dev/null 2>&1 || fail "initdb failed"
    fi
    under=("${as[@]}" "${under[@]}")
    serve "$folder/postgres" -D "$data/data" -p "$port" -k "$data"
    if [[ ! -e $data/filled ]]; then
        "${as[@]}" "$folder/pgbench" -h "$data" -p "$port" -i -q -s 2 postgres >/dev/null 2>&1 || fail "pgbench -i failed"
        touch "$data/filled"
    fi
    begin
    "${as[@]}" timeout 120 "$folder/pgbench" -h "$data" -p "$port" -c 16 -j 2 -T "$seconds" postgres >"$scratch/pgbench" 2>&1 ||
        fail "pgbench: $(tail -n 1 "$scratch/pgbench")"
    grep -q 'failed transactions: 0 ' "$scratch/pgbench" || fail "pgbench: $(tail -n 1 "$scratch/pgbench")"
    note "pgbench, 16 clients" "$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$scratch/pgbench")" tps
    local sums='select sum(abalance) from pgbench_accounts union select sum(bbalance) from pgbench_branches
        union select sum(tbalance) from pgbench_tellers union select sum(delta) from pgbench_history'
    "${as[@]}" "$folder/psql" -h "$data" -p "$port" -Atc 'vacuum' postgres >/dev/null || fail "vacuum failed"
    [[ $round != 1 || $("${as[@]}" "$folder/psql" -h "$data" -p "$port" -Atc "$sums" postgres | wc -l) == 1 ]] ||
        fail "the sums differ"
    stop INT
}

version_ffmpeg() { ffmpeg -version | sed -n 's/^ffmpeg version \([0-9.]*\).*/\1/p'; }
check_ffmpeg() { echo "x264's and the decoder's output, with frame threads"; }
run_ffmpeg() {
    need ffmpeg
    if [[ ! -e $scratch/in.y4m ]]; then
        ffmpeg -v error -f lavfi -i "testsrc2=s=640x360:d=$((seconds * 2)):r=30" -pix_fmt yuv420p "$scratch/in.y4m"
    fi
    timed "x264, 4 frame threads" ffmpeg -v error -y -i "$scratch/in.y4m" -c:v libx264 -preset veryfast -threads 4 -f h264 \
        "$scratch/out.264"
    once "$scratch/out.264" ffmpeg.h264
    timed "decode, 4 frame threads" ffmpeg -v error -threads 4 -thread_type frame -i "$scratch/out.264" -f md5 - \
        >"$scratch/md5"
    once "$scratch/md5" ffmpeg.md5
}

version_stress_ng() { stress-ng --version | sed 's/.*version \([0-9.]*\).*/\1/'; }
check_stress_ng() { echo "--verify"; }
run_stress_ng() {
    need stress-ng
    local kind attempt status
    for kind in pthread mutex futex sem switch timer sigq sigfd sigsuspend kill fork poll epoll eventfd nanosleep; do
        # Twice, since it takes limits that other processes of the user's may have reached for failures.
        for attempt in 1 2; do
            status=0
            timeout -k 5 60 "${under[@]}" stress-ng "--$kind" 2 --verify -t "$((seconds / 2 + 1))" --metrics-brief \
                --temp-path "$scratch" >"$scratch/stress" 2>&1 || status=$?
            if ((status == 0 || attempt == 2)); then break; fi
        done
        ((status == 0)) || fail "$kind: $(grep -m 1 -i 'fail' "$scratch/stress")"
        ! grep -qi 'fail:' "$scratch/stress" || fail "$kind: $(grep -m 1 -i 'fail:' "$scratch/stress")"
        # The first line of figures of this stressor: bogo-ops for each second of wall time.
        note "$kind" "$(awk -v k="$kind" '$4 == k && $5 ~ /^[0-9]+$/ { print $9; exit }' "$scratch/stress")" ops/s
    done
}

version_java() { java -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p'; }
check_java() { echo "sums, jstack, four collectors"; }
run_java() {
    need java javac jstack
    if [[ ! -e $scratch/java/Threads.class ]]; then javac -d "$scratch/java" "$real/Threads.java"; fi
    timed "2,000 threads" java -Xmx512m -cp "$scratch/java" Threads 2000 >"$scratch/sums"
    once "$scratch/sums" java.sums
    local collector pid
    for collector in UseSerialGC UseParallelGC UseG1GC UseZGC; do
        timed "300 threads, $collector" java "-XX:+$collector" -Xmx512m -cp "$scratch/java" Threads 300 >"$scratch/sums"
        once "$scratch/sums" java.sums.300
    done
    "${under[@]}" java -cp "$scratch/java" Threads 20 60 >"$scratch/waiting" 2>&1 &
    pid=$! server=$!
    trap stop_hard EXIT
    for ((i = 0; i < 300; i++)); do
        if grep -q waiting "$scratch/waiting"; then break; fi
        sleep 0.1
    done
    timeout 60 jstack "$pid" >"$scratch/jstack" || fail "jstack failed"
    grep -q 'Threads.main' "$scratch/jstack" || fail "jstack does not show main"
    stop TERM 143
}

version_node() { node --version; }
check_node() { echo "workers, crypto, files, HTTP, a child: the same output"; }
run_node() {
    need node
    timed "all of it" node "$real/node.js" "$scratch" >"$scratch/node"
    once "$scratch/node" node.output
}

version_preloads() { echo -; }
check_preloads() { echo "what threads counted"; }
run_preloads() {
    need cc
    local library path
    if [[ ! -x $scratch/blocks ]]; then cc -O2 -pthread "$real/blocks.c" -o "$scratch/blocks"; fi
    for library in jemalloc mimalloc tcmalloc_minimal; do
        for path in /usr/lib/x86_64-linux-gnu/"lib$library.so".[0-9]*; do :; done
        [[ -e $path ]] || fail "lib$library is not installed"
        LD_PRELOAD=$path timed "lib$library" "$scratch/blocks" >"$scratch/counted"
        once "$scratch/counted" preloads.counted
    done
}

# --- rounds and table ---------------------------------------------------------------------------

median() {
    sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

values() {
    awk -F '\t' -v label="$2" -v field="${3:-2}" '$1 == label { print $field }' "$scratch/values.$1"
}

failures=0
for name in "${programs[@]}"; do
    if ((${#only[@]})) && [[ " ${only[*]} " != *" $name "* ]]; then continue; fi
    rm -f "$scratch"/values.* "$scratch"/expected.*
    reason=
    for ((round = 1; round <= rounds; round++)); do
        for column in nptl heddle; do
            if [[ $column == heddle ]]; then under=("$heddle" run ${workers:+--workers "$workers"} --); else under=(); fi
            port=$((port + 2))
            : >"$scratch/where"
            set +e
            (
                # A command that fails where none may says so: many have their output elsewhere.
                set -eE
                trap 'echo "status $? of line $LINENO, $BASH_COMMAND" >"$scratch/where"' ERR
                "run_$name"
            ) >"$scratch/log" 2>&1 </dev/null
            status=$?
            set -e
            if ((status != 0)); then
                said=$(sed '/^[[:space:]]*$/d' "$scratch/log" | tail -n 1)
                where=$(head -n 1 "$scratch/where")
                reason="$column, round $round: ${said:-no message, status $status}${where:+ ($where)}"
                break 2
            fi
        done
    done
    printf '%s %s: %s: ' "$name" "$("version_$name" 2>/dev/null || true)" "$("check_$name")"
    if [[ -n $reason ]]; then
        echo "FAIL: $reason"
        failures=$((failures + 1))
    else
        echo pass
    fi
    if [[ -e $scratch/values.nptl && -e $scratch/values.heddle ]]; then
        while IFS=$'\t' read -r label unit; do
            on_nptl=$(values nptl "$label" | median)
            on_heddle=$(values heddle "$label" | median)
            ratio=$(awk -v a="$on_nptl" -v b="$on_heddle" 'BEGIN { printf "%.2f", a ? b / a : 0 }')
            cpu=
            if [[ -n $(values heddle "$label" 4 | tr -d '\n') ]]; then
                cpu=$(awk -v a="$(values nptl "$label" 4 | median)" -v b="$(values heddle "$label" 4 | median)" \
                    'BEGIN { if (a) printf "CPU %.2fx", b / a }')
            fi
            printf '    %-38s %12s %12s %-6s %6sx  %s\n' "$label" "$on_nptl" "$on_heddle" "$unit" "$ratio" "$cpu"
            slow=$(awk -v r="$ratio" -v u="$unit" 'BEGIN { print (u == "ms" ? r > 10 : r < 0.1) }')
            if ((slow)) && [[ $label != *p99 ]]; then
                echo "    FAIL: a tenth of NPTL's speed or less"
                failures=$((failures + 1))
            fi
        done < <(awk -F '\t' '!seen[$1]++ { print $1 "\t" $3 }' "$scratch/values.heddle")
    fi
done
if ((failures > 0)); then
    echo "$failures failed"
    exit 1
fi
echo "all passed${short:+ (short)}"
