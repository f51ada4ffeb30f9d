#!/usr/bin/env bash
# timeout: 200
# Hedging between real processes: a second source is asked when the first hangs, the first good answer wins,
# the other is cancelled; whatever ends a race, nothing of it stays behind.
# H10 H11 H12 H13 H14 H15 H17 R3 R9 R12 R13 R14 R16 R17 R19 R20 R21 R22 R23 R26 R31 R33 D4 D5 D6 D10 D11 D15 D16
# B4 B7 I25 I50 I56
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
factor=${TEST_TIME_FACTOR:-1}
start_source slow 'quota_group = one'
start_source quick 'quota_group = two
max_in_flight = 40'
start_source same 'quota_group = one'
penstock_options='workers = 2
threads = 40
log_level = warning'
image_options='enabled = true
max_concurrent_requests = 4
max_waiting_requests = 10
overflow_mode = wait'
while read -r scope sources more; do
    routed_scope "$scope" "$sources" "backoff_base_s=20ms;$more"
done >"$work/scopes" <<'END'
hedged slow,quick hedge_after_s=300ms
off slow,quick
none slow,quick hedge_after_s=300ms;retry_budget=0
once slow,quick hedge_after_s=300ms;retry_budget=1
twins slow,same hedge_after_s=300ms
bounded slow,quick hedge_after_s=300ms;call_deadline_s=1
eager slow,quick hedge_after_s=20ms;breaker_failures=3;breaker_cooldown_s=1
keen slow,quick hedge_after_s=2ms;breaker_failures=3;breaker_cooldown_s=1
END
configure_scopes <"$work/scopes"
start_penstock
stream=',"stream":true'
on() { scope_path=/$1; }
on hedged
race() { # race SLOW QUICK [members] [options of fcgi_client]: keys of both, then one call
    all_sources_well
    source_is slow "$1"
    source_is quick "$2"
    chat "${@:3}"
}
no_later_than() { # no_later_than WHAT MS LIMIT
    [ "$2" -le $(($3 * factor)) ] || fail "$1: after $2 ms, at most $3 were expected"
}
sees_no_call() { [ "$(of_source "$1" calls_open_now)" = 0 ]; }
sees_the_close() { [ "$(of_source "$1" aborted)" = "${2:-1}" ] && [ "$(of_source "$1" calls_open_now)" = 0 ]; }
rows_of_race() { attempts "n, source, hedge, coalesce(error, ''), kept_est"; }

# ---- H12, H14: who wins ----
for how in '' "$stream"; do
    keys=delay_ms=8000
    [ -z "$how" ] || keys=prelude_ms=8000 # head, role and comments at once: no content
    race "$keys" '' "$how"
    served_by "R3: the hedge wins$how" quick
    no_later_than "R3: the hedge wins$how" "$ended_ms" 700
    expect "R3: nothing of the loser$how" "$(grep -c slow "$work/body")" 0
    until_true "R3: the loser is cancelled at its source" sees_the_close slow
    expect "R31, R33: call" "$(booked "source, outcome, status, attempts, retries, hedges, hedge_won")" 'quick\|ok\|200\|2\|0\|1\|1'
    expect "R13, R14: attempts" "$(rows_of_race)" '1\|slow\|0\|hedge_cancelled\|1 2\|quick\|1\|\|0'
    expect "R26: from the hedge's own start" "$(booked "generation_ms < 250 and total_latency_ms >= 300")" 1
    expect "R19: the loser's source is not blamed" "$(source_state slow failures_in_a_row)" 0
    expect "the view" "$(ledger "select winner_source, hedge_won, loser_source, loser_error from show_hedges where logical_call_id =
        (select call_id from calls where model_asked = '$model')")" 'quick\|1\|slow\|hedge_cancelled'
    id=$(booked call_id)
    contains "H17: asked by its id" "$(ctl --json call "$id")" '"hedge_won": ?(true|1)'

    race "${keys/8000/600}" "${keys/8000/5000}" "$how"
    served_by "R33: the first wins all the same$how" slow
    until_true "R33: the hedge is cancelled at its source" sees_the_close quick
    expect "R33: call" "$(booked "source, attempts, retries, hedges, hedge_won")" 'slow\|2\|0\|1\|0'
    expect "R33: attempts" "$(rows_of_race)" '1\|slow\|0\|\|0 2\|quick\|1\|hedge_cancelled\|1'

    race "${keys/8000/100}" '' "$how"
    served_by "before the threshold$how" slow
    expect_requests_of "before the threshold$how" "slow quick" "1 0"
    expect "before the threshold: call" "$(booked "hedges, hedge_won, generation_ms > 0")" '0\|0\|1'
done
race chunk_ms=250,events=5 '' "$stream"
served_by "R16: slow generation is not hedged" slow
[ "$ended_ms" -ge 1000 ] || fail "R16: it was not slow: $ended_ms ms"
expect_requests_of "R16" "slow quick" "1 0"
race size=200,chunk=20,chunk_ms=60 ''
served_by "R17: a document is hedged by its whole time" '(slow|quick)'
expect_requests_of "R17" "slow quick" "1 1"
on off
race delay_ms=800 ''
served_by "H10: off" slow
expect_requests_of "H10: off" "slow quick" "1 0"
expect "R32: off" "$(booked "hedges, hedge_won, generation_ms >= 700")" '0\|0\|1'

# ---- H13: where a hedge goes, and where not ----
on twins
race delay_ms=900 ''
served_by "D16: never within one quota group" slow
expect_requests_of "D16" "slow same" "1 0"
expect "R31: not sent, not counted" "$(booked "hedges, attempts")" '0\|1'
on hedged
ctl drain quick >/dev/null || fail "drain"
race delay_ms=900 ''
served_by "R9: no other source: the first goes on" slow
expect "R9: without a trace" "$(booked "hedges, attempts, outcome")" '0\|1\|ok'
ctl undrain quick >/dev/null || fail "undrain"
all_sources_well
source_is slow delay_ms=900
for path in embeddings images/generations; do
    number=$((number + 1)) model=gpt-image-call-$number
    call -p "/hedged/v1/$path" -H "$json" -d "{\"model\":\"$model\",\"input\":\"x\",\"prompt\":\"x\"}"
    expect "R15: $path" "$code $status" "0 200"
    expect "R15: $path: call" "$(booked "hedges, attempts, generation_ms >= 800")" '0\|1\|1'
done
for members in '"previous_response_id":"resp_1"' '"tools":[{"type":"image_generation"}]' '"tools":[{"type":"web_search"}]' \
    '"background":true'; do
    call -p /hedged/v1/responses -H "$json" -d "{\"model\":\"m\",\"input\":\"x\",$members}"
    expect "H11: $members" "$code $status" "0 200"
done
expect_requests_of "H11, R15" "slow quick" "6 0"
all_sources_well
source_is slow delay_ms=5000
call -p /hedged/v1/responses -H "$json" -d '{"model":"m","input":"x"}'
expect "H11: a plain response is" "$code $status $(requests_of slow quick)" "0 200 1 1"

# ---- D5, H15: failures in a race ----
race delay_ms=500,status=500 delay_ms=700
served_by "R20: the first fails, the hedge answers" quick
expect "R20: attempts" "$(attempts "n, source, coalesce(status, 0), coalesce(error, '')")" '1\|slow\|500\|server_error 2\|quick\|200\|'
expect "R20: no retry" "$(booked "retries, hedges, hedge_won")" '0\|1\|1'
race delay_ms=900 status=500
served_by "D6: the hedge fails, the first answers" slow
expect "D6: no retry" "$(booked "retries, hedges, hedge_won")" '0\|1\|0'
expect_requests_of "D6" "slow quick" "1 1"
for keys in bad_event=0 close=20 error=openai_overloaded,status=200; do
    race delay_ms=900 "$keys"
    served_by "D6: $keys does not win" slow
done
race delay_ms=900 error_event=0,error=openai_overloaded "$stream"
served_by "D6: an error in a stream does not win" slow
race status=500 ''
served_by "D4: a failure before the threshold is tried again" quick
expect "D4" "$(booked "retries, hedges, hedge_won")" '1\|0\|0'
both_once() { race "tag=a,times=1,delay_ms=600,$1" "tag=b,times=1,delay_ms=400,$2"; }
on none
both_once status=500 status=500
expect "R21: both fail, no budget" "$code $status $(requests_of slow quick)" "0 500 1 1"
both_once status=429,retry_after_ms=50 status=429,retry_after_ms=50
expect "R22: both throttled: no unit" "$code $status" "0 200"
expect "R22" "$(booked "attempts >= 3, hedges >= 1")" '1\|1'
both_once status=429,retry_after_ms=50 status=500
expect "R23: one throttled, one failed: one unit" "$code" 0
[ "$status" -ge 429 ] || fail "R23: $status"
on once
both_once status=500 status=500
expect "R21: a pair costs one unit" "$code $status" "0 200"
expect "R21" "$(booked "attempts, retries, hedges")" '3\|1\|1'
on hedged
race prelude_ms=8000 events=40,size=100,close=2500 "$stream"
expect "D15: the winner breaks" "$code $status" "0 200"
contains "D15: it says so" "$(tail -n 3 "$work/body")" '"code":"penstock_upstream_cut"'
expect "D15: nobody else is asked" "$(booked "hedges, hedge_won, error_code")" '1\|1\|penstock_upstream_cut'
expect_requests_of "D15" "slow quick" "1 1"

# ---- D11: what ends both ----
all_sources_well
source_is slow delay_ms=8000
source_is quick delay_ms=8000
number=$((number + 1)) model=call-$number
"$client" -s "$work/penstock.sock" -p "/hedged$chat_path" -H "$json" -d "{\"model\":\"$model\",\"messages\":[]}" >"$work/leaves" &
leaving=$!
both_run() { [ "$(of_source slow calls_open_now)" = 1 ] && [ "$(of_source quick calls_open_now)" = 1 ]; }
until_true "D11: both run" both_run
kill "$leaving"
wait "$leaving" 2>/dev/null
for name in slow quick; do until_true "D11: $name sees the client leave" sees_the_close $name; done
expect "D11: attempts" "$(attempts "n, coalesce(error, '')")" '1\|client_cancelled 2\|client_cancelled'
expect "D11: call" "$(booked outcome)" client_gone
on bounded
race delay_ms=8000 delay_ms=8000
expect "D11: the deadline" "$code $status" "0 504"
no_later_than "B6: the deadline of a race" "$ended_ms" 1100
expect "D11: the deadline: attempts" "$(attempts "n, coalesce(error, '')")" '1\|deadline 2\|deadline'
for name in slow quick; do until_true "D11: $name sees the deadline" sees_the_close $name; done

# ---- I56: two thousand races ----
descriptors() { local pid sum=0; for pid in $(workers); do sum=$((sum + $(find "/proc/$pid/fd" | wc -l))); done; echo "$sum"; }
on eager
all_sources_well
source_is slow delay_ms=8000,skip_sha
source_is quick skip_sha
load warm -p "/eager$chat_path" -d '{"model":"m","messages":[]}' -c 80 -n 2000
load_ends warm
nothing_lost warm
until_true "the losers of the first calls are cancelled" sees_no_call slow
curl -s -X POST "$(source_url slow)/stats/reset" >/dev/null
before=$(descriptors)
load races -p "/eager$chat_path" -d '{"model":"m","messages":[]}' -c 16 -n 2000
load_ends races
nothing_lost races
until_true "I56: every loser is cancelled at its source" sees_the_close slow 2000
until_true "nothing of any source is taken" sources_are_idle
after=$(descriptors)
# A thread that comes to its first race now keeps three or four (80 threads, as good as all busy before); a leak
# would be one a race.
[ "$after" -le $((before + 40)) ] || fail "I56: $before descriptors before 2,000 races, $after after"
expect "R19: the losers' source is as good as before" "$(source_state slow breaker)" 'closed|0'

# ---- D10, I25: a probe that loses gives its place back ----
all_sources_well
source_is slow status=500
chat && chat && chat
slow_is_out() { ! source_state_is slow breaker closed; }
until_true "the breaker is open" slow_is_out
source_is slow delay_ms=8000,skip_sha,image=1 # of "images" it takes what has closed off before it counts
curl -s -X POST "$(source_url slow)/stats/reset" >/dev/null
is_probed() { ask -p "/eager$chat_path" -H "$json" -d '{"model":"m","messages":[]}' >/dev/null && [ "$(of_source slow requests)" -ge 1 ]; }
until_true "I25: a probe" is_probed
load probes -p "/keen$chat_path" -d '{"model":"m","messages":[]}' -c 4 -S 8
load_ends probes
nothing_lost probes
expect "I27: one at a time" "$(of_source slow images_open_max)" 1
[ "$(of_source slow requests)" -ge 500 ] || fail "B4: only $(of_source slow requests) probes"
not_probed() { [ "$(source_state slow probing)" = 0 ]; }
until_true "D10: the probe is back" not_probed

# ---- B7: kill -9 in the middle of a race whose first attempt is the probe ----
source_is quick delay_ms=8000
curl -s -X POST "$(source_url slow)/stats/reset" >/dev/null
curl -s -X POST "$(source_url quick)/stats/reset" >/dev/null
"$client" -s "$work/penstock.sock" -p "/eager$chat_path" -H "$json" -d '{"model":"killed","messages":[]}' >"$work/killed" &
killed=$!
pids+=("$killed")
until_true "B7: both run" both_run
expect "B7: the first is the probe" "$(source_state slow probing)" 1
mapfile -t old < <(workers)
kill -KILL "${old[@]}"
wait "$killed"
expect "B7: its client" $? 3
until_true "B7: places at the sources are given back" sources_are_idle
until_true "B7: so is the probe" not_probed
died() { [ "$(ledger "select count(*) from attempts where error = 'worker_died'")" = 2 ]; }
until_true "B7: the rows of both are closed" died
all_sources_well
works_again() { ask -p "/eager$chat_path" -H "$json" -d '{"model":"m","messages":[]}' | grep -q '"slow '; }
until_true "B7: the source comes back" works_again
until_true "nothing is in use" nothing_in_use
