#!/usr/bin/env bash
# kill -9 of monitor, master and workers in every combination, orphans, a second master, a stopped worker, a storm
# of reloads. The limit holds throughout; nobody loses what a death does not have to cost.
# M2 M4 M7 N1 N2 N7 G6 G11 N8
# timeout: 180
. "$(dirname "$0")/lib.sh"
begin
start_upstream -q -d size=500,skip_sha
limit=4
settings() {
    penstock_options='workers = 2
orphan_timeout_s = 2
log_level = warning' configure <<EOF
enabled = true
max_concurrent_requests = $limit
overflow_mode = wait
max_waiting_requests = 60
EOF
}
settings
start_penstock

pid_of() { ctl status --json | tr '{' '\n' | sed -n "/\"role\": *\"$1\"/s/.*\"pid\": *\([0-9]*\).*/\1/p"; }
serves_alone() { # the current generation, whole: a monitor and two workers, nobody draining
    local status
    status=$(ctl status --json) || return 1
    [ "$(grep -o '"role":"worker"' <<<"$status" | wc -l)" = 2 ] && [ "$(grep -o '"role":"monitor"' <<<"$status" | wc -l)" = 1 ] &&
        [ "$(grep -o '"role":"master"' <<<"$status" | wc -l)" = 1 ] && ! grep -q '"draining":true' <<<"$status" &&
        [ "$(grep -o '"processes".*' <<<"$status" | grep -o '"generation":[0-9]*' | sort -u | wc -l)" = 1 ]
}
until_true "all serve" serves_alone

# ---- a second master ----
"$penstockd" -c "$work/penstock.conf" >"$work/second" 2>&1
expect "second master: exit" $? 1
contains "second master" "$(cat "$work/second")" "another master of this instance runs: pid $master_pid"
expect "the first serves on" "$(ctl ping)" pong

# ---- every combination ----
semaphore=$(semaphore_id)
newer_than() { [ "$(status_number generation)" -gt "$1" ]; }
seen() { [ "$(upstream_stat images)" -ge "$1" ]; }
kill_them() { # kill_them WHO...: of monitor, master, worker, workers; under load, all in the same moment
    local who victims=() name="kill $*" generation broken=0 may=(broken)
    generation=$(status_number generation)
    for who in "$@"; do
        case $who in
        worker) victims+=("$(workers | head -n 1)") broken=1 ;;
        workers) mapfile -t -O "${#victims[@]}" victims < <(workers) && broken=1 ;;
        *) victims+=("$(pid_of "$who")") ;;
        esac
    done
    upstream_reset
    load images -p /v1/images/generations -H 'X-Mock: delay_ms=50' -d "$image" -c 24 -n 120
    load chat -p /v1/chat/completions -H 'X-Mock: delay_ms=20' -d '{"model":"m","messages":[]}' -c 4 -n 200
    until_true "$name: under load" seen 20
    # Without a service manager that keeps the sockets, nobody listens when all are dead.
    [[ " $* " == *" master "*" workers "* ]] && may+=(refused)
    kill -KILL "${victims[@]}"
    if [[ " $* " == *" master "* ]]; then
        wait "$master_pid" 2>/dev/null
        start_penstock
        until_true "$name: a new generation" newer_than "$generation"
    fi
    load_ends images chat
    expect "$name: lost calls ($(tr '\n' ',' <"$work/images"))" "$(other_than images 'status 200' "${may[@]}")" 0
    expect "$name: lost chat calls ($(tr '\n' ',' <"$work/chat"))" "$(other_than chat 'status 200' "${may[@]}")" 0
    [ "$broken" = 1 ] || expect "$name: calls that broke" "$(($(report images broken) + $(report chat broken)))" 0
    expect "$name: N1" "$(upstream_stat images_open_max)" "$limit"
    until_true "$name: all serve again" serves_alone
    until_true "$name: nothing is in use" nothing_in_use
    expect "$name: the same semaphore" "$(semaphore_id)" "$semaphore"
}
kill_them monitor
kill_them worker
kill_them workers
kill_them master
kill_them monitor workers
kill_them master monitor
kill_them master worker
kill_them master workers
kill_them master monitor workers
ledger_is_whole
grants_in_order

# ---- one that ends again and again by its own fault: the pause grows; killed, it is needed back ----
pauses() { sed -n 's/.*event=child_ended.*the monitor .* signal 6; the next starts in \([0-9]*\) ms.*/\1/p' "$work/penstock.log"; }
ended() { [ "$(pauses | wc -l)" -ge "$round" ]; }
for round in 1 2 3 4; do
    kill -ABRT "$(pid_of monitor)"
    until_true "the monitor's end $round is seen" ended
    until_true "a monitor again, $round" serves_alone
done
expect "each pause is longer" "$(pauses | tr '\n' ' ')" "100 200 400 800 "

# ---- orphans: serve on for orphan_timeout_s, then finish what they have and end ----
upstream_reset
began=$(date +%s%N)
draw -H 'X-Mock: delay_ms=4000' >"$work/slow" &
slow=$!
until_true "the slow call is at the upstream" seen 1
kill -KILL "$master_pid"
wait "$master_pid" 2>/dev/null
contains "orphans serve" "$(ask -p /v1/models)" 'gpt-image-2'
nobody_listens() { ! ask -p /v1/models -T 1; }
until_true "orphans take nothing new" nobody_listens
[ $(($(date +%s%N) - began)) -gt 1500000000 ] || fail "orphans ended before their time"
wait "$slow" || fail "the orphan did not finish its call"
contains "what an orphan had is finished" "$(cat "$work/slow")" '"b64_json"'
all_gone() { [ -z "$(penstock_pids)" ]; }
until_true "orphans end" all_gone
start_penstock
until_true "all serve" serves_alone
expect "the same semaphore" "$(semaphore_id)" "$semaphore"

# ---- a stopped worker: its waiters are passed over and keep their number ----
mapfile -t pair < <(workers)
draw_as() { # draw_as MODEL DELAY_MS [options]
    local model=$1 delay=$2
    shift 2
    load "$model" -p /v1/images/generations -H "X-Mock: delay_ms=$delay" -d "{\"model\":\"gpt-image-$model\",\"prompt\":\"a weir\"}" "$@"
}
rows() { ledger "select count(*) from waits where model = 'gpt-image-$1' and state = '$2'"; }
are() { [ "$(rows "$1" "$2")" = "$3" ]; }
stop_process "${pair[0]}" # so that the other gets all of these
draw_as holding 2500 -c 4 -n 4
until_true "four hold" are holding granted 4
draw_as stopped 20 -c 12 -n 12
until_true "twelve wait" are stopped waiting 12
kill -CONT "${pair[0]}"
stop_process "${pair[1]}"
load chat -p /v1/chat/completions -H 'X-Mock: delay_ms=20' -d '{"model":"m","messages":[]}' -c 4 -n 100 -T 10
draw_as passing 20 -c 8 -n 20 -T 15
until_true "others wait behind them" are passing waiting 8
ctl limit 5 >/dev/null
load_ends passing chat
nothing_lost passing chat
[ "$(report passing slowest_ms)" -lt 5000 ] || fail "the stopped held the others up: $(report passing slowest_ms) ms"
expect "G11: the stopped ones still wait" "$(rows stopped waiting)" 12
draw_as plug 2500
until_true "the fifth slot is taken" are plug granted 1
draw_as late 20 -c 4 -n 4
until_true "more wait" are late waiting 4
kill -CONT "${pair[1]}"
load_ends holding stopped late plug
nothing_lost holding stopped late
until_true "rows are closed" are late 'done' 4
expect "the stopped kept their number" "$(ledger "select (select max(grant_seq) from waits where model = 'gpt-image-stopped')
    < (select min(grant_seq) from waits where model = 'gpt-image-late')")" 1
expect "stopped: order" "$(ledger "select count(*) from (select grant_seq, lag(grant_seq) over (order by arrival_seq) as earlier
    from waits where model = 'gpt-image-stopped') where earlier > grant_seq")" 0
expect "stopped: nobody was killed for it" "$(workers | sort | tr '\n' ' ')" "$(printf '%s\n' "${pair[@]}" | sort | tr '\n' ' ')"
until_true "nothing is in use" nothing_in_use

# ---- a storm of reloads ----
ctl reload >/dev/null || fail "reload"
until_true "all serve" serves_alone
upstream_reset
load images -p /v1/images/generations -H 'X-Mock: delay_ms=40' -d "$image" -c 24 -S 6
load streams -p /v1/images/generations -H 'X-Mock: partials=4,chunk_ms=100' -c 6 -S 6 \
    -d '{"model":"gpt-image-2","prompt":"a weir","stream":true}'
load chat -p /v1/chat/completions -H 'X-Mock: delay_ms=20' -d '{"model":"m","messages":[]}' -c 4 -S 6
until_true "under load" seen 5
generations() { ctl status --json | tr '{' '\n' | sed -n '/"role": *"worker"/s/.*"generation": *\([0-9]*\).*/\1/p' | sort -u | wc -l; }
before=$(status_number generation)
for _ in $(seq 20); do
    kill -HUP "$master_pid" || fail "the master is gone"
    alive=$(generations)
    [ "$alive" -le 4 ] || fail "M7: $alive generations at once"
done
load_ends images streams chat
nothing_lost images streams chat
expect "whole streams" "$(report streams events)" $((5 * $(report streams 'status 200')))
expect "N1: reloads" "$(upstream_stat images_open_max)" "$limit"
[ "$(status_number generation)" -gt "$before" ] || fail "nothing was reloaded"
until_true "the old generations are gone" serves_alone

# ---- single calls while workers come and go: no connection waits for the next one to wake somebody ----
load lone -p /v1/models -c 1 -S 4 -T 10
alone() { kill -0 "${loads[lone]}" 2>/dev/null; }
while alone; do
    generation=$(status_number generation)
    kill -HUP "$master_pid"
    until_true "a new generation" newer_than "$generation"
done
load_ends lone
nothing_lost lone
echo "slowest single call: $(report lone slowest_ms) ms"
[ "$(report lone slowest_ms)" -lt 1500 ] || fail "a single call took $(report lone slowest_ms) ms"
until_true "the old generations are gone" serves_alone
until_true "nothing is in use" nothing_in_use
runs_at_once "$limit"
ledger_is_whole
