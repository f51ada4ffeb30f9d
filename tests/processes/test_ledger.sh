#!/usr/bin/env bash
# The ledger seen from outside: rows appear and close soon (L3); locked by somebody else, read for long, its writer
# killed, its file deleted: no call is slower or lost for it, and what can be written is written later (L4 L5 N8).
# LEDGER_LOCK_S=60 is what the specification asks for; shorter in every day's check.
# timeout: 150
. "$(dirname "$0")/lib.sh"
lock_s=${LEDGER_LOCK_S:-6}
begin
start_upstream -q -d size=500,skip_sha
penstock_options='workers = 2
log_level = warning' configure <<'EOF'
enabled = true
max_concurrent_requests = 4
overflow_mode = wait
max_waiting_requests = 60
EOF
start_penstock
chat='{"model":"m","messages":[]}'

# ---- L3: how old is a row when it is first seen? ----
age_of() { ledger "select cast((julianday('now') - julianday($1)) * 86400000 as integer) from waits where $2 limit 1"; }
first_seen() { # first_seen COLUMN CONDITION: age in ms at the first sight
    local age end=$((SECONDS + 20))
    while ((SECONDS < end)); do
        age=$(age_of "$1" "$2")
        [ -n "$age" ] && echo "$age" && return
    done
    fail "never seen: $2"
}
ctl limit 1 >/dev/null
for round in 1 2 3 4 5 6; do
    load holder -p /v1/images/generations -H 'X-Mock: delay_ms=400' -d "{\"model\":\"gpt-image-h$round\"}"
    first_seen arrived_at "model = 'gpt-image-h$round' and state = 'granted'" >>"$work/ages"
    load waiter -p /v1/images/generations -H 'X-Mock: delay_ms=1' -d "{\"model\":\"gpt-image-w$round\"}"
    first_seen arrived_at "model = 'gpt-image-w$round' and state = 'waiting'" >>"$work/ages"
    load_ends holder waiter
    first_seen ended_at "model = 'gpt-image-w$round' and state = 'done'" >>"$work/ages"
done
sort -n "$work/ages" | tr '\n' ' ' | sed 's/^/ages in ms: /; s/$/\n/'
# 100 ms are what is promised; a busy test machine gets ten times that for single ones, not for the usual row
[ "$(sort -n "$work/ages" | tail -n 1)" -le 1000 ] || fail "L3: a row was seen only after $(sort -n "$work/ages" | tail -n 1) ms"
[ "$(sort -n "$work/ages" | sed -n 9p)" -le 200 ] || fail "L3: half of the rows were seen only after $(sort -n "$work/ages" | sed -n 9p) ms"
ctl limit 4 >/dev/null

# ---- a reader that keeps its transaction from here to the end ----
mkfifo "$work/reader" "$work/writer"
sqlite3 "file:$work/ledger.db?mode=ro" <"$work/reader" >"$work/reader.out" 2>&1 &
pids+=("$!")
exec 7>"$work/reader"
echo 'begin; select count(*) from waits;' >&7
reads() { [ -s "$work/reader.out" ]; }
until_true "the reader reads" reads

under_load() { # under_load SECONDS: image and chat calls; as many of them, however long
    local pause=$(($1 * 5))
    load images -p /v1/images/generations -H "X-Mock: delay_ms=$((pause * 2))" -d "$image" -c 8 -S "$1" -T 20
    load chat -p /v1/chat/completions -H "X-Mock: delay_ms=$pause" -d "$chat" -c 4 -S "$1" -T 20
}
no_call_waited() { # no_call_waited WHAT BOUND_MS
    load_ends images chat
    nothing_lost images chat
    for name in images chat; do
        [ "$(report $name slowest_ms)" -lt "$2" ] || fail "$1: $name took $(report $name slowest_ms) ms"
    done
}
known() { # every row that the counters know of is there
    [ "$(ledger 'select count(*) from waits where grant_seq > 0')" = "$(status_number image_granted)" ] &&
        [ "$(ledger 'select count(*) from calls')" = "$(status_number requests)" ]
}

# ---- locked ----
sqlite3 "$work/ledger.db" <"$work/writer" >"$work/writer.out" 2>&1 &
pids+=("$!")
exec 8>"$work/writer"
failures=$(status_number failures)
echo '.timeout 5000
begin exclusive; select 1;' >&8
locked() { [ -s "$work/writer.out" ]; }
until_true "locked" locked
contains "it is locked" "$(sqlite3 "$work/ledger.db" 'begin immediate' 2>&1)" 'locked'
under_load "$lock_s"
no_call_waited "locked ledger" $((lock_s * 500))
[ "$(status_number failures)" -gt "$failures" ] || fail "the status page counts no failure"
[ "$(status_number waits_pending)" -gt 100 ] || fail "only $(status_number waits_pending) rows wait"
contains "status page" "$(ctl status)" 'journal: .* [1-9][0-9]* failed transactions'
echo 'commit;' >&8
exec 8>&-
ledger_is_whole
until_true "all rows are there" known

# ---- its writer is killed, again and again ----
under_load 4
for _ in $(seq 8); do
    monitor=$(ctl status --json | tr '{' '\n' | sed -n '/"role": *"monitor"/s/.*"pid": *\([0-9]*\).*/\1/p')
    kill -KILL "$monitor"
    back() { [ "$(ctl status --json | tr '{' '\n' | sed -n '/"role": *"monitor"/s/.*"pid": *\([0-9]*\).*/\1/p')" != "$monitor" ]; }
    until_true "a new monitor" back
done
no_call_waited "monitor killed" 3000
ledger_is_whole
until_true "all rows are there" known

# ---- deleted ----
under_load 3
more_than() { [ "$(status_number image_granted)" -gt "$1" ]; }
until_true "under load" more_than $(($(status_number image_granted) + 20))
rm -f "$work"/ledger.db*
before=$(status_number image_granted)
no_call_waited "deleted ledger" 1500
made() { [ -s "$work/ledger.db" ] && [ "$(ledger 'select count(*) from waits')" -gt 0 ]; }
until_true "a new ledger" made
written() { [ "$(status_number waits_pending)" = 0 ] && [ "$(status_number calls_pending)" = 0 ]; }
until_true "the journal is written" written
expect "integrity" "$(ledger 'pragma integrity_check')" ok
[ "$(ledger 'select count(*) from waits where grant_seq > 0')" -ge $(($(status_number image_granted) - before)) ] ||
    fail "grants after the deletion are missing"
closed() { [ "$(ledger "select count(*) from waits where state in ('waiting', 'granted')")" = 0 ]; }
until_true "no row stays open" closed
expect "the view is there" "$(ledger 'select count(*) from show_queue')" 0

echo 'commit; select count(*) from waits;' >&7
exec 7>&-
expect "no row of a wait was lost" "$(status_number waits_lost)" 0
expect "no row of a call was lost" "$(status_number calls_lost)" 0
until_true "nothing is in use" nothing_in_use
