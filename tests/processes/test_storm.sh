#!/usr/bin/env bash
# B1, N1, N2, N8, G6, G11: 400 clients on 8 slots, a third of them leaving, a worker killed every 300 ms.
# STORM_SECONDS=60 is the bar; shorter in every day's check.
# timeout: 180
. "$(dirname "$0")/lib.sh"
seconds=${STORM_SECONDS:-12}
begin
start_upstream -q -d size=1000,skip_sha
penstock_options='workers = 4
log_level = notice' configure <<'EOF'
enabled = true
max_concurrent_requests = 8
overflow_mode = wait
max_waiting_requests = 1200
wait_timeout_seconds = 60
EOF
start_penstock
until_true "every thread of every worker" grep -q event=ready "$work/penstock.log"
workers_are() { [ "$(workers | wc -l)" = "$1" ]; }
until_true "four workers" workers_are 4

# What a worker has open, by kind: connections from the web server could leak at every death and leave, pidfds at
# every burial. Kept upstream connections are no leak.
count_unix() { # PID: sockets with our name, the listening one included
    find "/proc/$1/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null | tr -dc '0-9\n' |
        awk -v name="$work/penstock.sock" 'NR == FNR { mine[$1] = 1; next } $8 == name && $7 in mine' - /proc/net/unix | wc -l
}
count_kind() { find "/proc/$1/fd" -lname "$2" 2>/dev/null | wc -l; }
threads_of() { awk '/^Threads:/{print $2}' "/proc/$1/status"; }
first=$(workers | head -n 1)
unix_at_start=$(count_unix "$first") threads_at_start=$(threads_of "$first")

kill_workers() { # what it has killed is one number a line
    local end=$((SECONDS + seconds)) monitor children victim i
    monitor=$(ctl status --json | tr '{' '\n' | sed -n '/"role": *"monitor"/s/.*"pid": *\([0-9]*\).*/\1/p')
    while ((SECONDS < end)); do
        read -r -a children </proc/"$master_pid"/task/"$master_pid"/children
        for i in "${!children[@]}"; do [ "${children[i]}" != "$monitor" ] || unset "children[i]"; done
        children=("${children[@]}")
        victim=${children[RANDOM % (${#children[@]} + (${#children[@]} == 0))]:-}
        [ -z "$victim" ] || { kill -KILL "$victim" && echo "$victim"; }
        sleep 0.3 # the pace is the test, nothing is awaited
    done
}

load documents -p /v1/images/generations -H 'X-Mock: delay_ms=60' -d "$image" -c 200 -S "$seconds" -l 33 -e 1 -T 90
load streams -p /v1/images/generations -H 'X-Mock: partials=3,chunk_ms=20' -c 200 -S "$seconds" -l 33 -e 2 -T 90 \
    -d '{"model":"gpt-image-2","prompt":"a weir","stream":true}'
chats=8
load chat -p /v1/chat/completions -H 'X-Mock: delay_ms=10' -d '{"model":"m","messages":[]}' -c $chats -S "$seconds" -e 3
kill_workers >"$work/killed" 2>/dev/null &
killer=$!
load_ends documents streams chat
wait "$killer"
kills=$(wc -l <"$work/killed")
for name in documents streams chat; do echo "$name: $(tr '\n' ',' <"$work/$name")"; done
echo "workers killed: $kills"

[ "$kills" -ge $((seconds * 2)) ] || fail "only $kills workers were killed"
expect "N1: image calls open at the upstream" "$(upstream_stat images_open_max)" 8
until_true "N2: nothing is in use" nothing_in_use
for name in documents streams chat; do
    expect "$name: neither answered nor cut by a kill" "$(other_than "$name" 'status 200' left broken)" 0
    expect "$name: time-outs" "$(report "$name" late)" 0
done
[ "$(report chat broken)" -le $((kills * chats)) ] || fail "more chat calls broke than the killed workers could have had"
[ "$(report chat 'status 200')" -gt "$(report chat broken)" ] || fail "most chat calls broke"
expect "N4: errors inside answers" "$(($(report documents ended_with_error) + $(report chat ended_with_error)))" 0
expect "streams that were answered are whole" "$(report streams completed)" "$(report streams 'status 200')"

ledger_is_whole
grants_in_order
granted=$(ledger 'select count(*) from waits where grant_seq > 0')
[ "$(upstream_stat images)" -le "$granted" ] || fail "N3: the upstream saw more image calls than were granted ($granted)"
[ "$granted" -ge $((seconds * 10)) ] || fail "only $granted image calls were granted: no storm"
expect "the dead are in the ledger" "$(ledger "select count(*) from waits where state = 'worker_died'")" '[1-9][0-9]*'

until_true "four workers again" workers_are 4
runs_at_once 8
until_true "nothing is in use" nothing_in_use
for pid in $(workers); do
    no_connections() { [ "$(count_unix "$pid")" = "$unix_at_start" ]; }
    until_true "connections from the web server are closed in $pid" no_connections
    expect "threads of $pid" "$(threads_of "$pid")" "$threads_at_start"
    [ "$(count_kind "$pid" '*pidfd*')" -le 12 ] || fail "pidfds leak in $pid: $(count_kind "$pid" '*pidfd*')"
    expect "spooled files of $pid" "$(count_kind "$pid" '*deleted*')" 0
done
