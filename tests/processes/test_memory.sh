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
configure <<'EOF'
enabled = true
max_concurrent_requests = 4
overflow_mode = wait
EOF
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
    load_ends "images.$every" "chat.$every"
    rm "$work/fail"
    echo "every $every-th: $(tr '\n' ',' <"$work/images.$every") $(tr '\n' ',' <"$work/chat.$every")"
    expect "every $every-th: nobody waits for ever" "$(report "images.$every" late) $(report "chat.$every" late)" "0 0"
    kill -0 "$master_pid" || fail "every $every-th: the master has ended"
    [ "$(upstream_stat images_open_max)" -le 4 ] || fail "N1: every $every-th"
    until_true "every $every-th: two workers" workers_are_two
    until_true "every $every-th: nothing is in use" nothing_in_use
    runs_at_once 4
    ledger_is_whole
    kill -QUIT "$master_pid"
    wait "$master_pid"
done
