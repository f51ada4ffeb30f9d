#!/usr/bin/env bash
# Out of threads, descriptors, spool: refused in words, nobody else is stopped, nothing is lost for good.
# M15 M16 N2 N7 N9 B1
# timeout: 120
. "$(dirname "$0")/lib.sh"
begin
start_upstream -q -d size=500,skip_sha
chat='{"model":"m","messages":[]}'
settings() { # settings WORKERS THREADS [lines of the section penstock]
    penstock_options="workers = $1
threads = $2
log_level = error
$(printf '%s\n' "${@:3}")" configure <<'EOF'
enabled = true
max_concurrent_requests = 2
overflow_mode = wait
max_waiting_requests = 4
EOF
}
converse() { load "$1" -p /v1/chat/completions -d "$chat" "${@:2}"; }
busy_is() { [ "$(ctl status --json | grep -o '"threads_busy": *[0-9]*' | awk -F: '{ sum += $2 } END { print sum }')" = "$1" ]; }

# ---- threads ----
settings 2 3
out=$("$penstockd" -t -c "$work/penstock.conf" 2>&1)
expect "too few threads: exit" $? 78
contains "too few threads: the arithmetic" "$out" '2 workers \* 3 threads = 6'
settings 2 4
start_penstock
load images -p /v1/images/generations -H 'X-Mock: delay_ms=1500' -d "$image" -c 6 -n 6
until_true "images take what they may" busy_is 6
contains "one more image call is refused" "$(draw)" '"code":"penstock_image_queue_full"'
converse reserve -c 2 -n 40
load_ends reserve
nothing_lost reserve
[ "$(report reserve slowest_ms)" -lt 1400 ] || fail "other calls had to wait for image calls: $(report reserve slowest_ms) ms"
load_ends images
nothing_lost images

converse all -H 'X-Mock: delay_ms=5000' -c 8 -n 8
until_true "every thread is busy" busy_is 8
began=$(date +%s%N)
converse excess -c 12 -n 12 -T 20
out=$(ask -p /v1/chat/completions -d "$chat")
waited_ms=$((($(date +%s%N) - began) / 1000000))
contains "M15: status" "$out" '^Status: 503'
contains "M15: code" "$out" '"code":"penstock_busy"'
contains "M15: Retry-After" "$(tr -d '\r' <<<"$out")" '^[Rr]etry-[Aa]fter: [1-9]'
expect "M15: after about a second (ms)" "$waited_ms" '[0-9]{3}|[123][0-9]{3}'
expect "the monitor answers" "$(ctl ping)" pong
load_ends excess
expect "M15: all others too" "$(report excess 'status 503')" 12
[ "$(report excess slowest_ms)" -lt 4500 ] || fail "M15: the last was refused only after $(report excess slowest_ms) ms"
load_ends all
nothing_lost all
contains "afterwards all is well" "$(ask -p /v1/chat/completions -d "$chat")" '"usage"'
expect "M15: counted" "$(status_number refused_busy)" 13
until_true "no thread is lost" busy_is 0

# ---- what a process may have ----
restart() {
    kill -QUIT "$master_pid"
    wait "$master_pid"
    start_penstock
    workers_are() { [ "$(workers | wc -l)" = 2 ]; }
    until_true "two workers" workers_are
}
settings 2 16
restart
mapfile -t pair < <(workers)
descriptors() { find "/proc/$1/fd" -type l -o -lname '*' 2>/dev/null | wc -l; }
short_of() { # short_of WHAT: load that may be refused (502: no socket to the upstream was to be had) but not cut off
    local name=$1
    # calls that fail at once come faster than a busy ledger writes: no more than its buffer holds
    load "$name.images" -p /v1/images/generations -H 'X-Mock: delay_ms=20' -d "$image" -c 6 -n 1500 -T 15
    load "$name.chat" -p /v1/chat/completions -H 'X-Mock: delay_ms=20' -d "$chat" -c 16 -S 2 -T 15
    load_ends "$name.images" "$name.chat"
    echo "$name: $(tr '\n' ',' <"$work/$name.images") $(tr '\n' ',' <"$work/$name.chat")"
    expect "$name: ends of images" "$(other_than "$name.images" 'status 200' 'status 502' 'status 503')" 0
    expect "$name: ends of chat calls" "$(other_than "$name.chat" 'status 200' 'status 502' 'status 503')" 0
    [ "$(upstream_stat images_open_max)" -le 2 ] || fail "$name: N1"
}
as_before() { # as_before WHAT
    converse after -c 16 -n 100
    load_ends after
    nothing_lost after
    until_true "$1: nothing is in use" nothing_in_use
    runs_at_once 2
    expect "$1: nobody died" "$(workers | sort | tr '\n' ' ')" "$(printf '%s\n' "${pair[@]}" | sort | tr '\n' ' ')"
}
for pid in "${pair[@]}"; do prlimit --pid "$pid" --nofile=$(($(descriptors "$pid") + 12)):; done
short_of descriptors
for pid in "${pair[@]}"; do prlimit --pid "$pid" --nofile=4096:; done
as_before descriptors

# ---- spool ----
settings 2 16 'spool_max = 4m' 'spool_above = 64k'
restart
mapfile -t pair < <(workers)
printf '{"model":"gpt-image-2","prompt":"%1500000s"}' x >"$work/big"
load first -p /v1/images/generations -H 'X-Mock: delay_ms=1500' -f "$work/big"
in_use_is() { [ "$(status_number used)" = "$1" ]; }
until_true "the first is spooled and runs" in_use_is 1
load spooled -p /v1/images/generations -f "$work/big" -c 6 -n 6
load_ends first spooled
contains "spool: the first" "$(cat "$work/first")" '"b64_json"'
expect "spool: ends" "$(other_than spooled 'status 200' 'status 503')" 0
[ "$(report spooled 'status 503')" -ge 1 ] || fail "spool: all had room in 4 MB"
printf '{"model":"gpt-image-2","prompt":"%5000000s"}' x >"$work/big"
contains "spool: code" "$(ask -p /v1/images/generations -H 'Content-Type: application/json' -f "$work/big")" '"code":"penstock_spool_full"'
printf '{"model":"gpt-image-2","prompt":"%1500000s"}' x >"$work/big"
for n in 1 2 3; do
    contains "spool: room again $n" "$(ask -p /v1/images/generations -H 'Content-Type: application/json' -f "$work/big")" '"b64_json"'
done
for pid in "${pair[@]}"; do expect "spool: files left" "$(find "/proc/$pid/fd" -lname '*deleted*' | wc -l)" 0; done
expect "spool: nothing in the state directory" "$(find "$work" -name 'spool.*' | wc -l)" 0
as_before spool
ledger_is_whole
