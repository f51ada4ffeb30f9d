# lib.sh - what the process tests share: real penstockd, simulated upstream, a stand-in for the web server.
# Source it, call `begin`, start things, assert; everything started is ended by pid on exit.
# shellcheck shell=bash
set -uo pipefail
BUILD=$(realpath "${BUILD:-build/release}")
penstockd=$BUILD/penstockd
penstockctl=$BUILD/penstockctl
client=$BUILD/tools/fcgi_client
pids=() # of our own children, in order of start
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
    local code=$? pid semaphore
    trap - EXIT
    semaphore=$(semaphore_id 2>/dev/null)
    for pid in $(penstock_pids); do
        kill -CONT "$pid" 2>/dev/null
        kill -KILL "$pid" 2>/dev/null
    done
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    [ -n "$semaphore" ] && ipcrm -s "$semaphore" 2>/dev/null
    rm -f "/dev/shm/penstock-$gate"
    if [ "$code" -ne 0 ] && [ -n "${KEEP_WORK:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
    exit "$code"
}

until_true() { # until_true WHAT COMMAND...: a condition, not a time; 20 s are the bound against hanging
    local what=$1
    shift
    for _ in $(seq 400); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.05
    done
    fail "never came true: $what"
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
}

ctl() { "$penstockctl" -s "unix:$work/status.sock" "$@"; }
semaphore_id() { ctl status --json | sed -n 's/.*"semaphore_id": *\([0-9]*\).*/\1/p' | head -n 1; }
status_number() { ctl status --json | grep -o "\"$1\": *[0-9]*" | head -n 1 | grep -o '[0-9]*$'; }
workers() { # pids of the master's workers
    ctl status --json | tr '{' '\n' | sed -n '/"role": *"worker"/s/.*"pid": *\([0-9]*\).*/\1/p'
}
ledger() { sqlite3 -cmd '.timeout 2000' "file:$work/ledger.db?mode=ro" "$1"; }
upstream_stat() { curl -s "http://127.0.0.1:$upstream_port/stats" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }
upstream_reset() { curl -s -X POST "http://127.0.0.1:$upstream_port/stats/reset" >/dev/null; }
ask() { "$client" -s "$work/penstock.sock" "$@"; }
image='{"model":"gpt-image-2","prompt":"a weir"}'
draw() { ask -p /v1/images/generations -H 'Content-Type: application/json' -d "$image" "$@"; }

expect() { # expect WHAT GOT WANTED (a number or an extended regular expression)
    [[ $2 =~ ^($3)$ ]] || fail "$1: wanted $3, got: $2"
}
contains() { # contains WHAT TEXT PATTERN
    grep -Eq -- "$3" <<<"$2" || fail "$1: wanted /$3/ in: $(head -c 600 <<<"$2")"
}
