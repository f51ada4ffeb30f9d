#!/usr/bin/env bash
# A graceful stop: what runs is finished, status is answered meanwhile, and the ledger has every row when it is
# over. At its end, what still runs is cut with an error its client can read.
# G9 N8
. "$(dirname "$0")/lib.sh"
begin
start_upstream
penstock_options='stop_timeout_s = 2'
configure <<<'enabled = true
max_concurrent_requests = 2'
start_penstock
in_use() { [ "$(status_number used)" = "$1" ]; }

load ends -p /v1/images/generations -H 'X-Mock: delay_ms=1000' -d "$image"
load "is_cut" -p /v1/images/generations -H 'X-Mock: delay_ms=60000' -d "$image"
until_true "two calls run" in_use 2
kill -QUIT "$master_pid"
load_ends ends
contains "the call that ends in time" "$(cat "$work/ends")" 'b64_json'
expect "in use while it stops" "$(status_number used)" 1
load_ends is_cut
contains "the call that does not" "$(cat "$work/is_cut")" 'Status: 503.*|penstock_shutting_down'
wait "$master_pid"
expect "exit status" $? 0
expect "processes left" "$(penstock_pids)" ''
expect "open rows" "$(ledger "select count(*) from waits where state in ('waiting', 'granted')")" 0
expect "rows of waits" "$(ledger 'select count(*) from waits')" 2
expect "rows of calls" "$(ledger 'select count(*) from calls')" 2
echo "stop: ok"
