#!/usr/bin/env bash
# The gate with real processes: order, refusals, live limits, what sqlite3 and the status page show.
# G5 G6 G10 L3
# shellcheck source=tests/processes/lib.sh
. "$(dirname "$0")/lib.sh"
begin
start_upstream -d delay_ms=700,size=1000
configure <<'EOF'
enabled = true
max_concurrent_requests = 2
overflow_mode = wait
max_waiting_requests = 3
EOF
start_penstock

# Six at once: two run, three wait, one finds the queue full.
known() { [ "$(status_number image_requests)" = "$1" ]; }
for n in 1 2 3 4 5 6; do
    draw -H "X-Call: $n" >"$work/answer.$n" &
    callers+=($!)
    until_true "call $n is known" known "$n"
done
waiting_is() { [ "$(ledger 'select count(*) from show_queue')" = "$1" ]; }
until_true "L3: three wait in the ledger" waiting_is 3
expect "L3: two hold slots" "$(ledger 'select count(*) from show_slots')" 2
expect "positions" "$(ledger 'select group_concat(position) from (select position from show_queue order by position)')" "1,2,3"
contains "penstockctl queue" "$(ctl queue)" 'gpt-image-2'
wait "${callers[@]}"
contains "G6: refusal" "$(cat "$work"/answer.6)" '^Status: 429'
contains "G6: refusal code" "$(cat "$work"/answer.6)" '"code":"penstock_image_queue_full"'
contains "G7: Retry-After" "$(tr -d '\r' <"$work/answer.6")" '^Retry-After: [1-9][0-9]?$'
for n in 1 2 3 4 5; do contains "call $n" "$(cat "$work/answer.$n")" '"b64_json":"[A-Za-z0-9+/]{1000}"'; done
done_is() { [ "$(ledger "select count(*) from waits where state='done'")" = "$1" ]; }
until_true "rows are closed" done_is 5
expect "G6: nobody passed an earlier one" "$(ledger 'select count(*) from waits a join waits b on a.arrival_seq<b.arrival_seq and a.grant_seq>b.grant_seq and a.boot=b.boot and b.grant_seq>0')" 0
expect "never more than 2 at the upstream" "$(upstream_stat images_open_max)" 2
expect "G14: pictures are booked" "$(ledger 'select sum(images) from calls')" 5

# Chat calls are not counted.
contains "chat beside" "$(ask -p /v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"m","messages":[]}')" '"usage"'
expect "chat does not meet the gate" "$(ledger 'select count(*) from waits')" 6

# The limit moves while calls run.
upstream_reset
ctl limit 5 >/dev/null || fail "penstockctl limit"
"$client" -s "$work/penstock.sock" -p /v1/images/generations -H 'Content-Type: application/json' -d "$image" -c 5 -n 5 >"$work/five"
contains "five run at once" "$(cat "$work/five")" '^status 200 5$'
expect "G10: raised limit" "$(upstream_stat images_open_max)" 5
ctl reload >/dev/null || fail "penstockctl reload"
limit_is() { [ "$(status_number limit)" = "$1" ]; }
until_true "M11: a reload sets the configured limit again" limit_is 2
expect "nothing is in use" "$(status_number used)" 0

# Reject mode, by reload.
sed -i 's/^overflow_mode = wait/overflow_mode = reject/' "$work/penstock.conf"
generation=$(status_number generation)
ctl reload >/dev/null
newer() { [ "$(status_number generation)" -gt "$generation" ] && [ "$(workers | wc -l)" -eq 2 ]; }
until_true "a new generation serves alone" newer
draw >"$work/one" & first=$!
draw >"$work/two" & second=$!
in_use_is() { [ "$(status_number used)" = "$1" ]; }
until_true "two run" in_use_is 2
out=$(draw)
contains "G5: 429 at once" "$out" '^Status: 429'
contains "G5: code" "$out" '"message":"The image concurrency limit.*2 of 2.*"type":"rate_limit_error","param":null,"code":"penstock_image_limit"'
wait "$first" "$second"
contains "the held ones went on" "$(cat "$work/one" "$work/two")" '"b64_json"'
expect "integrity" "$(ledger 'pragma integrity_check')" ok
