#!/usr/bin/env bash
# B5: the daemon is replaced again and again under load, the sockets being the service manager's: no request fails,
# image streams in flight lose no event, the old and the new obey one limit. RESTARTS=5.
# M7 N1 N4
# timeout: 120
. "$(dirname "$0")/lib.sh"
begin
start_upstream -q -d size=300,skip_sha
penstock_options='workers = 2
log_level = notice' configure <<'EOF'
enabled = true
max_concurrent_requests = 8
overflow_mode = wait
max_waiting_requests = 60
EOF
"$BUILD/tools/socket_activate" "$work/penstock.sock" "$work/status.sock" "$penstockd" -c "$work/penstock.conf" \
    >"$work/started" 2>>"$work/penstock.log" &
manager=$!
pids+=("$manager")
until_true "penstockd answers" ctl ping
semaphores+=("$(semaphore_id)")
semaphore=$(semaphore_id)
started() { grep -c '^started' "$work/started"; }
newest() { awk '/^started/{ pid = $2 } END { print pid }' "$work/started"; }
current() { [ "$(status_number master_pid)" = "$(newest)" ] && [ "$(own_ready)" = 1 ]; }
own_ready() { grep -c "event=ready" "$work/penstock.log" | awk -v want="$(started)" '{ print ($1 >= want) }'; }
until_true "the first serves" current

restarts=${RESTARTS:-5}
seconds=$((restarts * 2))
# A stream lasts 2 s: some are in flight at every replacement. 40 previews and the picture are 41 events.
load streams -p /v1/images/generations -H 'X-Mock: partials=40,chunk_ms=50' -c 6 -S $seconds -e 1 \
    -d '{"model":"gpt-image-2","prompt":"a weir","stream":true}'
load documents -p /v1/images/generations -H 'X-Mock: delay_ms=60' -d "$image" -c 16 -S $seconds -e 2
load chat -p /v1/chat/completions -H 'X-Mock: delay_ms=20' -d '{"model":"m","messages":[]}' -c 4 -S $seconds -e 3
streaming() { curl -s "http://127.0.0.1:$upstream_port/stats" | grep -q '"images_open_now":[4-8]'; }
further() { [ "$(upstream_stat images)" -ge $((round * 60)) ]; }
for round in $(seq "$restarts"); do
    until_true "round $round: a while later" further
    until_true "round $round: calls are in flight" streaming
    before=$(started)
    old=$(newest)
    kill -QUIT "$old"
    again() { [ "$(started)" -gt "$before" ] && current; }
    until_true "round $round: the next one serves" again
    expect "round $round: the same limit" "$(semaphore_id)" "$semaphore"
done
load_ends streams documents chat
for name in streams documents chat; do echo "$name: $(tr '\n' ',' <"$work/$name")"; done
nothing_lost streams documents chat
whole=$(report streams 'status 200')
expect "events of the streams" "$(report streams events)" $((41 * whole))
expect "completed streams" "$(report streams completed)" "$whole"
expect "N1 over all replacements" "$(upstream_stat images_open_max)" '[1-8]'
# Counted on the other side: what was sent is what was received, no call was made twice, none was cut.
expect "image calls at the upstream" "$(upstream_stat images)" $((whole + $(report documents 'status 200')))
expect "calls at the upstream" "$(upstream_stat requests)" \
    $((whole + $(report documents 'status 200') + $(report chat 'status 200')))
expect "cut at the upstream" "$(upstream_stat aborted)" 0
until_true "nothing is in use" nothing_in_use
one_generation() { [ "$(workers | wc -l)" = 2 ]; }
until_true "the old ones have ended" one_generation
runs_at_once 8
ledger_is_whole
grants_in_order
expect "starts in the ledger" "$(ledger "select count(*) from events where name = 'start'")" $((restarts + 1))
kill -TERM "$manager"
wait "$manager" || fail "the last one did not end well"
