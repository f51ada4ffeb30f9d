#!/usr/bin/env bash
# Clients that leave before, while they wait, in the middle of the answer, and clients that stay and never read:
# place and slot are free soon, the upstream's connection is closed or, with on_client_gone = finish, read to the end.
# G8 G9 G9a G14 N2 N7
# timeout: 90
. "$(dirname "$0")/lib.sh"
begin
start_upstream -q -d size=500,skip_sha
settings() {
    penstock_options='workers = 2
log_level = warning
client_stall_timeout_seconds = 2' configure <<EOF
enabled = true
max_concurrent_requests = 2
overflow_mode = wait
max_waiting_requests = 20
on_client_gone = $1
EOF
}
settings cancel
start_penstock
used_is() { [ "$(status_number used)" = "$1" ]; }
state_of() { ledger "select state from waits where model = 'gpt-image-$1'"; }
state_is() { [ "$(state_of "$1")" = "$2" ]; }
stat_is() { [ "$(upstream_stat "$1")" = "$2" ]; }
draw_as() { # draw_as MODEL MOCK [options]: in the background
    local model=$1 mock=$2 stream=''
    shift 2
    [[ $model == stream* ]] && stream=',"stream":true'
    load "$model" -p /v1/images/generations -H "X-Mock: $mock" -d "{\"model\":\"gpt-image-$model\",\"prompt\":\"a weir\"$stream}" "$@"
}
leave() { # leave NAME: the web server closes the connection; the time in ms goes to $left_ms
    left_ms=$(date +%s%3N)
    kill -KILL "${loads[$1]}"
    wait "${loads[$1]}" 2>/dev/null
}
after_leaving_ms() { # after_leaving_ms MODEL: from the close to the end of its row
    ledger "select cast(round((julianday(ended_at) - 2440587.5) * 86400000) as integer) - $left_ms from waits where model = 'gpt-image-$1'"
}
middle() { sort -n | awk '{ n[NR] = $1 } END { print n[int((NR + 1) / 2)] }'; }

# ---- before ----
draw_as before delay_ms=1 -c 20 -n 200 -l 100 -m 0
load_ends before
expect "left at once: answered or left" "$(other_than before left 'status 200')" 0
until_true "left at once: nothing is in use" nothing_in_use
ask -p /v1/images/generations -H 'Content-Type: application/json' -d "$image" -k 9 >"$work/cut"
contains "a body that was never whole" "$(cat "$work/cut")" '^Status: 400'

# ---- while waiting (G8) ----
upstream_reset
draw_as holding delay_ms=4000 -c 2 -n 2
until_true "two hold" used_is 2
for n in 1 2 3 4 5 6 7; do
    draw_as "waiting$n" delay_ms=1
    until_true "it waits" state_is "waiting$n" waiting
    leave "waiting$n"
    until_true "the place is free" state_is "waiting$n" client_gone
    after_leaving_ms "waiting$n" >>"$work/left"
done
echo "left the queue after ms: $(sort -n "$work/left" | tr '\n' ' ')"
[ "$(middle <"$work/left")" -le 250 ] || fail "G8: places were freed only after $(middle <"$work/left") ms"
[ "$(sort -n "$work/left" | tail -n 1)" -le 1000 ] || fail "G8: a place was freed only after $(sort -n "$work/left" | tail -n 1) ms"
expect "G8: never at the upstream" "$(upstream_stat images)" 2
expect "counted" "$(status_number image_left_queue)" '[1-9][0-9]*'
load_ends holding
nothing_lost holding

# ---- before the head, in the middle of a stream, image or not ----
upstream_reset
aborted=0
gone_in_the_middle() { # gone_in_the_middle NAME
    leave "$1"
    aborted=$((aborted + 1))
    until_true "$1: the upstream's connection is closed" stat_is aborted $aborted
    until_true "$1: the slot is free" used_is 0
}
open_is() { stat_is calls_open_now "$1"; }
draw_as head delay_ms=20000
until_true "it draws" open_is 1
gone_in_the_middle head
until_true "row" state_is head client_gone
echo "left before the head after ms: $(after_leaving_ms head)"
draw_as stream1 partials=400,chunk_ms=50
until_true "it streams" open_is 1
gone_in_the_middle stream1
until_true "row" state_is stream1 client_gone
echo "left a stream after ms: $(after_leaving_ms stream1)"
load chat -p /v1/chat/completions -H 'X-Mock: events=400,chunk_ms=50' -d '{"model":"m","messages":[],"stream":true}'
until_true "it streams" open_is 1
gone_in_the_middle chat

# ---- stays and never reads (G9a) ----
resident_kb() { for pid in $(workers); do awk '/^VmRSS/{print $2}' "/proc/$pid/status"; done | awk '{ sum += $1 } END { print sum }'; }
resident=$(resident_kb)
draw_as stream2 partials=60,size=1m -r -T 30
draw_as document size=40m -r -T 30
began=$(date +%s%3N)
until_true "both draw" used_is 2
load beside -p /v1/chat/completions -d '{"model":"m","messages":[]}' -c 4 -n 100
load_ends beside
nothing_lost beside
[ $(($(resident_kb) - resident)) -lt 30000 ] || fail "G9a: $(($(resident_kb) - resident)) kB are kept for clients that do not read"
until_true "G9a: their slots are free" used_is 0
stalled_ms=$(($(date +%s%3N) - began))
[ "$stalled_ms" -ge 1500 ] || fail "G9a: given up after $stalled_ms ms"
[ "$stalled_ms" -le 8000 ] || fail "G9a: given up only after $stalled_ms ms"
aborted=$((aborted + 2))
until_true "G9a: the upstream's connections are closed" stat_is aborted $aborted
for name in stream2 document; do
    until_true "row" state_is "$name" client_gone
    wait "${loads[$name]}"
    expect "$name stayed until it was cut off" $? 3
done
busy() { ctl status --json | grep -o '"threads_busy":[0-9]*' | awk -F: '{ sum += $2 } END { exit sum > 0 }'; }
until_true "no thread is pinned" busy

# ---- on_client_gone = finish: read to the end, booked ----
settings finish
generation=$(status_number generation)
ctl reload >/dev/null || fail "reload"
newer() { [ "$(status_number generation)" -gt "$generation" ] && [ "$(workers | wc -l)" -eq 2 ]; }
until_true "a new generation serves alone" newer
upstream_reset
draw_as finish delay_ms=1500,n=2
draw_as stream3 partials=20,chunk_ms=75
until_true "both draw" used_is 2
until_true "both are at the upstream" open_is 2
leave finish
leave stream3
expect "the slots stay while the upstream works" "$(status_number used)" 2
until_true "read to the end" stat_is 'done' 2
expect "nothing was cut" "$(upstream_stat aborted)" 0
until_true "the slots are free" used_is 0
booked() { [ "$(ledger "select group_concat(images || ' ' || outcome) from (select images, outcome from calls where model_asked
    in ('gpt-image-finish', 'gpt-image-stream3') order by model_asked)")" = "2 client_gone,1 client_gone" ]; }
until_true "G14: pictures are booked" booked
until_true "nothing is in use" nothing_in_use
runs_at_once 2
ledger_is_whole
