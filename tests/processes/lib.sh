# lib.sh - what the process tests share: real penstockd, simulated upstream, a stand-in for the web server.
# Source it, call `begin`, start things, assert; everything started is ended by pid on exit.
# shellcheck shell=bash
set -uo pipefail
BUILD=$(realpath "${BUILD:-build/release}")
penstockd=$BUILD/penstockd
penstockctl=$BUILD/penstockctl
client=$BUILD/tools/fcgi_client
pids=() # of our own children, in order of start
semaphores=() mounts=() # to be removed at the end
work='' upstream_port='' upstream_pid='' master_pid='' gate=''

fail() {
    echo "FAILED: $*"
    [ -f "$work/penstock.log" ] && tail -n 15 "$work/penstock.log"
    exit 1
}

begin() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-test.XXXXXX")
    gate=test-$$
    trap finish EXIT
    trap 'exit 1' INT TERM
}

# Every penstockd of this test, also orphans: they have the work folder's configuration in their arguments.
penstock_pids() {
    local entry
    for entry in /proc/[0-9]*; do
        { tr '\0' ' ' <"$entry/cmdline" | grep -qF "$work/penstock.conf"; } 2>/dev/null && echo "${entry#/proc/}"
    done
}

finish() {
    local code=$? pid semaphore folder
    trap - EXIT
    for pid in $(penstock_pids); do
        kill -CONT "$pid" 2>/dev/null
        kill -KILL "$pid" 2>/dev/null
    done
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    for semaphore in "${semaphores[@]}"; do ipcrm -s "$semaphore" 2>/dev/null; done
    for folder in "${mounts[@]}"; do umount -l "$folder" 2>/dev/null; done
    rm -f "/dev/shm/penstock-$gate"
    if [ "$code" -ne 0 ] && [ -n "${KEEP_WORK:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
    exit "$code"
}

until_true() { # until_true WHAT COMMAND...: a condition, not a time; 20 s are the bound against hanging
    local what=$1 end=$((SECONDS + ${TEST_PATIENCE:-20} * ${TEST_TIME_FACTOR:-1}))
    shift
    while ((SECONDS <= end)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.05
    done
    fail "never came true: $what"
}

# kill -STOP only asks: until each thread has come to it, the process may take one more connection,
# and keep it for as long as it is stopped.
is_stopped() { ! grep -L '^State:[[:space:]]*[TtZX]' "/proc/$1"/task/*/status | grep -q .; }
stop_process() { # PID
    kill -STOP "$1"
    until_true "process $1 is stopped" is_stopped "$1"
}

start_upstream() { # [options of simulated_upstream]
    "$BUILD/tools/simulated_upstream" -p "${upstream_port:-0}" "$@" >"$work/upstream.log" 2>&1 &
    upstream_pid=$!
    pids+=("$upstream_pid")
    until_true "upstream" grep -q '^port ' "$work/upstream.log"
    upstream_port=$(awk '/^port /{print $2; exit}' "$work/upstream.log")
}

configure() { # configure: reads further lines of [image_concurrency] from stdin; $penstock_options go first
    cat >"$work/penstock.conf" <<EOF
[penstock]
listen = unix:$work/penstock.sock
status_listen = unix:$work/status.sock
state_directory = $work
runtime_directory = $work
${penstock_options:-}

[source up]
base_url = http://127.0.0.1:$upstream_port
${source_options:-}

[route all]
path = /v1/
source = up

[image_concurrency]
gate = $gate
$(cat)
EOF
}

start_penstock() {
    "$penstockd" -c "$work/penstock.conf" >>"$work/penstock.log" 2>&1 &
    master_pid=$!
    pids+=("$master_pid")
    until_true "penstockd answers" ctl ping
    semaphores+=("$(semaphore_id)")
}

ctl() { "$penstockctl" -s "unix:$work/status.sock" "$@"; }
semaphore_id() { ctl status --json | sed -n 's/.*"semaphore_id": *\([0-9]*\).*/\1/p' | head -n 1; }
status_number() { ctl status --json | grep -o "\"$1\": *[0-9]*" | head -n 1 | grep -o '[0-9]*$'; }
workers() { # pids of the master's workers
    ctl status --json | tr '{' '\n' | sed -n '/"role": *"worker"/s/.*"pid": *\([0-9]*\).*/\1/p'
}
ledger() { sqlite3 -cmd '.timeout 2000' "file:$work/ledger.db?mode=ro" "$1"; }
upstream_stat() { curl -s "http://127.0.0.1:$upstream_port/stats" | grep -o "\"$1\":[0-9]*" | head -n 1 | cut -d: -f2; }
upstream_reset() { curl -s -X POST "http://127.0.0.1:$upstream_port/stats/reset" >/dev/null; }
ask() { "$client" -s "$work/penstock.sock" "$@"; }
image='{"model":"gpt-image-2","prompt":"a weir"}'
draw() { ask -p /v1/images/generations -H 'Content-Type: application/json' -d "$image" "$@"; }

# ---- load beside the test ----
declare -A loads=() # name -> pid
load() { # load NAME [options of fcgi_client]: runs beside the test, its report goes to $work/NAME
    local name=$1
    shift
    "$client" -s "$work/penstock.sock" -H 'Content-Type: application/json' "$@" >"$work/$name" 2>&1 &
    loads[$name]=$!
    pids+=("$!")
}
load_ends() { # load_ends NAME...: wait for them
    local name
    for name in "$@"; do wait "${loads[$name]}"; done
}
report() { awk -v want="$2" 'index($0, want " ") == 1 { n = $NF } END { print n + 0 }' "$work/$1"; } # report NAME WORDS
other_than() { # other_than NAME WORDS...: how many ended otherwise than these lines of the report say
    local name=$1
    shift
    printf '%s\n' "$@" | awk '
        NR == FNR { want[$0] = 1; next }
        /^(status [0-9]+|left|broken|refused|late) [0-9]+$/ { n = $NF; sub(/ [0-9]+$/, ""); if (!($0 in want)) sum += n }
        END { print sum + 0 }' - "$work/$name"
}
nothing_lost() { # nothing_lost NAME...: every request of these loads was answered 200, and some were
    local name
    for name in "$@"; do
        expect "$name: requests not answered with 200 ($(tr '\n' ',' <"$work/$name"))" "$(other_than "$name" 'status 200')" 0
        expect "$name: errors inside answers" "$(report "$name" ended_with_error)" 0
        [ "$(report "$name" 'status 200')" -gt 0 ] || fail "$name: no request was made"
    done
}

# ---- what must hold when all is over ----
semaphore_value() { ipcs -s -i "$(semaphore_id)" | awk '$1 == "0" && NF == 5 { print $2; exit }'; }
nothing_in_use() {
    [ "$(status_number used)" = 0 ] && [ "$(semaphore_value)" = 0 ] && [ "$(status_number held)" = 0 ] &&
        ctl status --json | grep -q '"queue":{"length":0,'
}
# Within one boot of the segment a later arrival is never granted first (G6), but past a waiter that did not answer
# (M2): that is counted, and happens to nobody on a machine that is not overloaded.
grants_in_order() {
    local inversions passed
    inversions=$(ledger 'select count(*) from (select grant_seq, lag(grant_seq) over
        (partition by boot order by arrival_seq) as earlier from waits where grant_seq > 0) where earlier > grant_seq')
    passed=$(status_number image_passed_over)
    [ "$passed" = 0 ] || echo "grants past a waiter that did not answer: $passed"
    [ "$inversions" -le "$passed" ] || fail "$inversions grants out of order, only $passed past a waiter that did not answer"
}
ledger_is_whole() { # L5, N8: readable, nothing half-true, every grant is there, every row is closed
    written() {
        [ "$(status_number waits_pending)" = 0 ] && [ "$(status_number calls_pending)" = 0 ] &&
            [ "$(status_number attempts_pending)" = 0 ]
    }
    until_true "the journal is written" written
    expect "integrity" "$(ledger 'pragma integrity_check')" ok
    expect "records lost" "$(status_number waits_lost)" 0
    expect "grants in the ledger" "$(ledger 'select count(*) from waits where grant_seq > 0')" "$(status_number image_granted)"
    expect "open rows" "$(ledger "select count(*) from waits where state in ('waiting', 'granted')")" 0
    expect "attempts lost" "$(status_number attempts_lost)" 0
}
runs_at_once() { # runs_at_once N: so many new image calls run at the same time, and not one more
    upstream_reset
    load at_once -p /v1/images/generations -H 'X-Mock: delay_ms=1000,size=100' -d "$image" -c "$1" -n "$1"
    load_ends at_once
    nothing_lost at_once
    expect "calls at once" "$(upstream_stat images_open_max)" "$1"
}

expect() { # expect WHAT GOT WANTED (a number or an extended regular expression)
    [[ $2 =~ ^($3)$ ]] || fail "$1: wanted $3, got: $2"
}
contains() { # contains WHAT TEXT PATTERN
    grep -Eq -- "$3" <<<"$2" || fail "$1: wanted /$3/ in: $(head -c 600 <<<"$2")"
}
