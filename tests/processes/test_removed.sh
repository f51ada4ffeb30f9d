#!/usr/bin/env bash
# The semaphore removed with ipcrm and the segment's name with rm, while everything runs.
# M9 N1 N2
# timeout: 120
. "$(dirname "$0")/lib.sh"
begin
start_upstream -q -d size=500,skip_sha
limit=4
penstock_options='workers = 2
log_level = warning' configure <<EOF
enabled = true
max_concurrent_requests = $limit
overflow_mode = wait
max_waiting_requests = 60
EOF
start_penstock
seen() { [ "$(upstream_stat images)" -ge "$1" ]; }
workers_are() { [ "$(workers | wc -l)" = "$1" ]; }
until_true "two workers" workers_are 2

# ---- the semaphore: new set, roll call, no grant before all have answered ----
load images -p /v1/images/generations -H 'X-Mock: delay_ms=70' -d "$image" -c 24 -S "${REMOVED_SECONDS:-5}" -T 15
load chat -p /v1/chat/completions -H 'X-Mock: delay_ms=20' -d '{"model":"m","messages":[]}' -c 4 -S "${REMOVED_SECONDS:-5}" -T 15
until_true "under load" seen 8
for round in 1 2 3 4 5; do
    old=$(semaphore_id)
    epoch=$(status_number semaphore_epoch)
    ipcrm -s "$old" || fail "ipcrm"
    renewed() { [ "$(status_number semaphore_epoch)" -gt "$epoch" ] && [ "$(semaphore_id)" != "$old" ]; }
    until_true "round $round: a new semaphore" renewed
    semaphores+=("$(semaphore_id)")
    full() { [ "$(semaphore_value)" = "$limit" ]; }
    until_true "round $round: all shares are in it" full
done
load_ends images chat
nothing_lost images chat
expect "N1 without a semaphore" "$(upstream_stat images_open_max)" "$limit"
until_true "nothing is in use" nothing_in_use
runs_at_once "$limit"

# A worker that dies right after the removal: its slots come back, and no more than they.
upstream_reset
load images -p /v1/images/generations -H 'X-Mock: delay_ms=70' -d "$image" -c 24 -n 150 -T 15
until_true "under load" seen 8
old=$(semaphore_id)
victim=$(ctl status --json | sed 's/.*"slots"//; s/"queue".*//' | grep -o '"pid":[0-9]*' | head -n 1 | cut -d: -f2)
ipcrm -s "$old"
kill -KILL "$victim"
load_ends images
expect "lost by removal and death" "$(other_than images 'status 200' broken)" 0
expect "N1 with removal and death" "$(upstream_stat images_open_max)" "$limit"
until_true "nothing is in use" nothing_in_use
semaphores+=("$(semaphore_id)")
until_true "two workers" workers_are 2
runs_at_once "$limit"
ledger_is_whole

# ---- the segment's name ----
[ -e "/dev/shm/penstock-$gate" ] || fail "there is no /dev/shm/penstock-$gate"
expect "linked" "$(ctl status --json | grep -o '"linked":[a-z]*')" '"linked":true'
load images -p /v1/images/generations -H 'X-Mock: delay_ms=50' -d "$image" -c 12 -n 150 -T 15
rm "/dev/shm/penstock-$gate"
unlinked() { ctl status --json | grep -q '"linked":false'; }
until_true "status says it" unlinked
contains "status says what to do" "$(ctl status)" '^segment: .*removed'
noticed() { [ "$(ledger "select count(*) from events where name = 'segment_unlinked'")" = 1 ]; }
until_true "the ledger has the event" noticed
load_ends images
nothing_lost images
expect "N1 with the name removed" "$(upstream_stat images_open_max)" "$limit"
until_true "nothing is in use" nothing_in_use

# A worker that dies is replaced: it gets the segment from its master.
kill -KILL "$(workers | head -n 1)"
until_true "two workers" workers_are 2
runs_at_once "$limit"

# The master dies; a new one must not make a second segment while workers of the old one live.
load held -p /v1/images/generations -H 'X-Mock: delay_ms=5000' -d "$image" -c 2 -n 2 -T 30
in_use_is() { [ "$(status_number used)" = "$1" ]; }
until_true "two run" in_use_is 2
kill -KILL "$master_pid"
wait "$master_pid" 2>/dev/null
"$penstockd" -c "$work/penstock.conf" >"$work/second" 2>&1
expect "a new master beside old workers: exit" $? 1
contains "it says why" "$(cat "$work/second")" "/dev/shm/penstock-$gate was removed while processes that use it still live: stop them first"
[ ! -e "/dev/shm/penstock-$gate" ] || fail "a second segment was made"
contains "the orphans serve on" "$(ask -p /v1/models)" 'gpt-image-2'
load_ends held
nothing_lost held
for pid in $(penstock_pids); do kill -QUIT "$pid"; done
all_gone() { [ -z "$(penstock_pids)" ]; }
until_true "they end" all_gone
start_penstock
until_true "two workers" workers_are 2
expect "linked again" "$(ctl status --json | grep -o '"linked":[a-z]*')" '"linked":true'
runs_at_once "$limit"

# A reload with the name removed: refused or not, nothing is lost and there is no second limit.
rm "/dev/shm/penstock-$gate"
until_true "status says it" unlinked
upstream_reset
load images -p /v1/images/generations -H 'X-Mock: delay_ms=50' -d "$image" -c 12 -n 150 -T 15
until_true "under load" seen 8
ctl reload >"$work/reload" 2>&1
load_ends images
nothing_lost images
expect "N1: reload with the name removed" "$(upstream_stat images_open_max)" "$limit"
until_true "nothing is in use" nothing_in_use
kill -0 "$master_pid" || fail "the master ended: $(cat "$work/reload")"
contains "what a refused reload says" "$(cat "$work/reload")" "generation $(status_number generation) still serves"
