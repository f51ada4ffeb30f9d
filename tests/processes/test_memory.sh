#!/usr/bin/env bash
# Every n-th allocation of every process fails for a while, under load: calls may fail, a worker may even end
# (libfcgi aborts when it gets no memory); no slot, place or row is lost, and afterwards all is well.
# N2 N7 N8 G9
# shellcheck source=tests/processes/lib.sh
. "$(dirname "$0")/lib.sh"
case $BUILD in */asan | */tsan) echo "skipped: sanitizers bring their own malloc" && exit 77 ;; esac
begin
gcc -shared -fPIC -O1 -o "$work/failing_malloc.so" "$(dirname "$0")/failing_malloc.c" || fail "cannot build the library"
start_upstream -d delay_ms=10,size=2000
configure <<EOF
enabled = true
max_concurrent_requests = 4
overflow_mode = wait

[source limited]
base_url = http://127.0.0.1:$upstream_port
rpm = 60000
tpm = 60000000
max_concurrency = 4

[scope limited]
sources = limited
flow = shaping
flow_warmup_s = 0

[route limited]
path = /limited/
strip_prefix = /limited
scope = limited
EOF
limited_is_idle() {
    ctl status --json >"$work/status.json"
    [ "$(sqlite3 :memory: "select sum(json_extract(value, '\$.in_flight') + json_extract(value, '\$.waiting.normal')) from
        json_each(cast(readfile('$work/status.json') as text), '\$.flows')")" = 0 ]
}
workers_are_two() { [ "$(workers | wc -l)" = 2 ]; }
export FAILING_MALLOC_WHILE=$work/fail
for every in 5003 20011; do
    export FAILING_MALLOC_EVERY=$every
    LD_PRELOAD=$work/failing_malloc.so "$penstockd" -c "$work/penstock.conf" >>"$work/penstock.log" 2>&1 &
    master_pid=$!
    pids+=("$master_pid")
    until_true "penstockd answers" ctl ping
    touch "$work/fail"
    load "images.$every" -p /v1/images/generations -H 'Content-Type: application/json' -d "$image" -c 12 -n 300 -l 20 -m 40 -T 15
    load "chat.$every" -p /v1/chat/completions -H 'X-Mock: stream=1' -d '{"model":"m","stream":true,"messages":[]}' -c 8 -n 300 -T 15
    load "flow.$every" -p /limited/v1/chat/completions -d '{"model":"m","stream":true,"messages":[]}' -c 8 -n 300 -l 10 -m 40 -T 15
    load_ends "images.$every" "chat.$every" "flow.$every"
    rm "$work/fail"
    echo "every $every-th: $(tr '\n' ',' <"$work/images.$every") $(tr '\n' ',' <"$work/chat.$every") $(tr '\n' ',' <"$work/flow.$every")"
    expect "every $every-th: nobody waits for ever" "$(report "images.$every" late) $(report "chat.$every" late) $(report "flow.$every" late)" "0 0 0"
    kill -0 "$master_pid" || fail "every $every-th: the master has ended"
    [ "$(upstream_stat images_open_max)" -le 4 ] || fail "N1: every $every-th"
    until_true "every $every-th: two workers" workers_are_two
    until_true "every $every-th: nothing is in use" nothing_in_use
    until_true "every $every-th: nothing is in a flow" limited_is_idle
    runs_at_once 4
    ledger_is_whole
    kill -QUIT "$master_pid"
    wait "$master_pid"
done
