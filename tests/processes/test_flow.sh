#!/usr/bin/env bash
# timeout: 180
# Flow control between real processes: rate and pace as the upstream sees them, turns of classes, waits that end in
# every way, usage that stays here, DRAIN and recovery, slot and flow together; nothing is held afterwards.
# F3 F4 F5 F6 F8 F9 F11 B4 N1 N7 N9 R12
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
factor=${TEST_TIME_FACTOR:-1}
plenty='rpm = 600000
tpm = 600000000'
start_source rated 'rpm = 600' # ten a second
start_source shaped 'rpm = 600
tpm = 60000' # and a thousand tokens
start_source narrow 'rpm = 6000
max_concurrency = 1'
start_source four 'rpm = 6000
max_concurrency = 4'
start_source shared 'rpm = 1200' # twenty a second
start_source meagre 'rpm = 6'
start_source learned ''
start_source slow "$plenty"
start_source quick "$plenty"
start_source drawing 'rpm = 60000
tpm = 60000
max_concurrency = 2
flow_unit = images'
penstock_options='workers = 2
threads = 640
log_level = warning'
image_options='enabled = true
max_concurrent_requests = 3
max_waiting_requests = 60
overflow_mode = wait'
while read -r scope sources more; do
    routed_scope "$scope" "$sources" "backoff_base_s=20ms;$more"
done >"$work/scopes" <<'END'
plain slow
rate rated flow=rate;flow_initial=0
shaping shaped flow=shaping;flow_warmup_s=0
waiting narrow flow=rate
killing four flow=rate;retry_unknown_outcome=true
classes shared flow=rate;flow_initial=0;flow_class_header_max=interactive
bounded shared flow=rate;flow_initial=0;flow_class_header_max=bulk
hopeless meagre flow=rate;flow_initial=1;flow_max_wait_s=1,2,3
adaptive learned flow=adaptive
tokens slow flow=shaping;flow_warmup_s=0;flow_drain_s=30
hedged slow,quick flow=shaping;flow_warmup_s=0;hedge_after_s=200ms
pictures drawing flow=shaping;flow_warmup_s=0
END
configure_scopes <"$work/scopes"
start_penstock

# ---- what is seen ----
flow_state() { # flow_state GROUP MODEL PATH: of the status page's JSON; sums up over models when MODEL is %
    ctl status --json >"$work/status.json"
    sqlite3 :memory: "select sum(json_extract(value, '\$.$3')) from json_each(cast(readfile('$work/status.json') as text),
        '\$.flows') where json_extract(value, '\$.quota_group') = '$1' and json_extract(value, '\$.model') like '$2'"
}
adaptive_state() {
    ctl status --json >"$work/status.json"
    sqlite3 :memory: "select json_extract(value, '\$.state') from json_each(cast(readfile('$work/status.json') as text),
        '\$.flows') where json_extract(value, '\$.quota_group') = '$1'"
}
flow_is() { [ "$(flow_state "$1" "$2" "$3")" = "$4" ]; }
flow_reaches() { [ "$(flow_state "$1" "$2" "$3")" -ge "$4" ]; }
waiting_in() { ctl status --json >"$work/status.json" && sqlite3 :memory: "select sum(json_extract(value, '\$.waiting.interactive') +
    json_extract(value, '\$.waiting.normal') + json_extract(value, '\$.waiting.bulk')) from
    json_each(cast(readfile('$work/status.json') as text), '\$.flows') where json_extract(value, '\$.quota_group') = '$1'"; }
some_wait_in() { [ "$(waiting_in "$1")" -ge "$2" ]; }
flow_is_idle() { [ "$(waiting_in "$1")" = 0 ] && flow_is "$1" % in_flight 0; }
records() { # records NAME N COLUMN...: of its last N calls, in the order they came
    local name=$1 count=$2
    shift 2
    last_of_source "$name" "$count" >"$work/records"
    sqlite3 -separator ' ' :memory: "select $(printf "json_extract(value, '\$.%s'), " "$@")'' from
        json_each(cast(readfile('$work/records') as text), '\$.last') order by json_extract(value, '\$.begun_ns')"
}
no_later_than() { # no_later_than WHAT MS LIMIT
    [ "$2" -le $(($3 * factor)) ] || fail "$1: after $2 ms, at most $3 were expected"
}
goes_at_once() { # goes_at_once WHAT [DOCUMENT]: another call of the scope does not wait
    chat "${2:-}"
    expect "$1: the next call" "$code $status" "0 200"
    no_later_than "$1: the next call" "$(header x-penstock-wait-ms)" 150
}
on() { scope_path=/$1; }
text='"messages":[{"role":"user","content":"How many roads must a man walk down?"}]'
ask_in() { # ask_in NAME SCOPE [options of fcgi_client]: load of calls of one model
    local name=$1 scope=$2
    shift 2
    load "$name" -p "/$scope$chat_path" -d "{\"model\":\"m\",$text}" "$@"
}

# ---- F3: the rate, whatever comes; first come, first served ----
source_is rated delay_ms=5
source_is shaped in_tokens=60,out_tokens=140,delay_ms=5
ask_in rating rate -u -e 7 -c 40 -n 40 -R 50
# ---- F4 meanwhile: tokens and pace ----
ask_in shaping shaping -c 30 -n 30
load_ends rating shaping
nothing_lost rating shaping
# Nothing was in hand: between any two of them the bucket filled again.
records rated 40 begun_ns call >"$work/rated"
excess=$(awk '{ at[NR] = $1 / 1e9; for (i = 1; i < NR; i++) { e = (NR - i) - 10 * (at[NR] - at[i]); if (e > most) most = e } }
    END { printf "%d", most + 0.5 }' "$work/rated")
[ "$excess" -le 2 ] || fail "F3: $excess calls more than the rate lets through between two of them"
# They are sent 20 ms apart, and may arrive in another order than they were sent when the machine is busy: not by 10.
early=$(cut -d- -f2 "$work/rated" | awk '$1 > most { most = $1 } most - $1 > worst { worst = most - $1 } END { print worst + 0 }')
[ "$early" -lt 10 ] || fail "F3: not in the order they came: a call was overtaken by one sent $early later"
expect "F3: sends of the minute" "$(flow_state rated m sends_60s)" 40
expect "F4: settled with what was used" "$(flow_state shaped m units_60s)" $((30 * 200))
records shaped 30 begun_ns >"$work/shaped"
early=$(awk 'NR > 1 && $1 - last < 50e6 { n++ } { last = $1 } END { print n + 0 }' "$work/shaped")
[ "$early" -le 4 ] || fail "F4: $early of 30 calls within 50 ms of the one before"
excess=$(awk '{ at[NR] = $1 / 1e9 } END { printf "%d", (NR - 1) * 200 - 1000 * (at[NR] - at[1]) }' "$work/shaped")
# what two seconds bring may be in hand, and one call is charged less than it uses as long as nothing is known
[ "$excess" -le 2400 ] || fail "F4: $excess tokens more than the rate lets through"
expect "F4: all is booked" "$(flow_state shaped m in_flight) $(flow_state shaped m completed)" "0 30"

# ---- F9: hopeless, and said so ----
on hopeless
call -p /hopeless$chat_path -H "$json" -d "{\"model\":\"m\",$text}"
expect "F9: the first" "$code $status" "0 200"
call -t -p /hopeless$chat_path -H "$json" -d "{\"model\":\"m\",$text}"
expect_refusal "F9" 429 penstock_rate_limit
no_later_than "F9: at once" "$(tail -n 1 "$work/times" | cut -d' ' -f1)" 500
contains "F9: when" "$head" '^Retry-After: ([5-9]|10|11)$'
expect "F9: never sent" "$(of_source meagre requests)" 1
expect "F9: counted" "$(flow_state meagre m refused.hopeless)" 1
call -p /hopeless/v1/models
expect "what only looks is not counted" "$code $status" "0 200"
# An image call that its flow turned away is in the ledger as any call that was; the gate has no part in it.
of_pictures() { ledger "select $1 from calls where kind = 'image' and scope = 'hopeless' and status = $2"; }
pictures_are_booked() { [ "$(of_pictures 'count(*)' 200) $(of_pictures 'count(*)' 429)" = "1 1" ]; }
for expected in 200 429; do
    call -p /hopeless/v1/images/generations -H "$json" -d "$image"
    expect "F9: a picture" "$code $status" "0 $expected"
done
expect_refusal "F9: a picture" 429 penstock_rate_limit
until_true "F9: pictures are in the ledger" pictures_are_booked
expect "F9: what the ledger says" "$(of_pictures 'outcome, error_code, attempts' 429)" 'refused\|penstock_rate_limit\|0'
expect "F9: the gate has seen the other one" "$(ledger "select state from waits where scope = 'hopeless'")" 'done'
expect "F9: not refused by the gate" "$(ledger 'select count(*) from show_refusals')" 0

# ---- B4: clients that leave while they wait cost nothing ----
on waiting
ask_in first waiting -n 3 # how long calls take is known now
load_ends first
source_is narrow delay_ms=2500
ask_in holder waiting
until_true "B4: one runs" flow_is narrow m in_flight 1
sends=$(flow_state narrow m sends_60s)
in_hand=$(flow_state narrow m requests_in_hand)
ask_in leavers waiting -c 500 -n 500 -l 100 -m 1800
until_true "B4: hundreds wait" some_wait_in narrow 200
load_ends leavers
expect "B4: all left" "$(report leavers left)" 500
until_true "B4: none waits" flow_is narrow m waiting.normal 0
expect "B4: nothing was sent" "$(flow_state narrow m sends_60s)" "$sends"
[ "$(flow_state narrow m requests_in_hand)" -ge "$in_hand" ] || fail "B4: $(flow_state narrow m requests_in_hand) in hand, $in_hand before"
load_ends holder
source_is narrow ''
contains "B4: the one that ran" "$(cat "$work/holder")" '"choices"'
goes_at_once "B4"
expect "B4: the upstream has seen the others only" "$(of_source narrow requests)" 5
expect "B4: at once" "$(of_source narrow calls_open_max)" 1

# ---- N7: workers are killed while calls wait and run ----
on killing
source_is four delay_ms=120
ask_in first killing -n 3
load_ends first
ask_in killed killing -c 40 -S 5
for _ in 1 2 3 4; do
    until_true "N7: calls wait" some_wait_in four 10
    victim=$(workers | sort -n | head -n 1)
    kill -KILL "$victim"
    sleep 1
done
load_ends killed
expect "N7: what was lost broke off with its worker" "$(other_than killed 'status 200' broken refused)" 0
[ "$(report killed 'status 200')" -ge 60 ] || fail "N7: only $(report killed 'status 200') calls were served"
expect "N7: never more at once than may be" "$(of_source four calls_open_max)" "[1-4]"
[ "$(flow_state four m buried)" -ge 4 ] || fail "N7: buried $(flow_state four m buried)"
source_is four ''
until_true "N7: nothing is left over" flow_is_idle four
for _ in 1 2 3 4 5; do goes_at_once "N7"; done

# ---- F8: shares of classes, claimed by header as far as one may ----
for class in interactive normal bulk; do
    ask_in "class_$class" classes -c 40 -S 20 -H "X-Penstock-Class: $class"
done
until_true "F8: turns were given" flow_reaches shared m granted.interactive 50
granted=$(for class in interactive normal bulk; do flow_state shared m granted.$class; done | tr '\n' ' ')
for class in interactive normal bulk; do
    kill -KILL "${loads[class_$class]}"
    wait "${loads[class_$class]}" 2>/dev/null
done
awk '{ exit !($1 >= 2.5 * $2 && $1 <= 6 * $2 && $3 >= 1 && $2 >= 2 * $3) }' <<<"$granted" || fail "F8: 16, 4 and 1 of 21 became $granted"
until_true "F8: who left has gone" flow_is_idle shared
before=$(flow_state shared % granted.interactive)
on bounded
chat '' -H 'X-Penstock-Class: interactive'
expect "F8: more than one may" "$code $status $(flow_state shared % granted.interactive)" "0 200 $before"
before=$(flow_state shared % granted.bulk)
chat '' -H 'X-Penstock-Class: bulk'
expect "F8: as one may" "$code $status $(flow_state shared % granted.bulk)" "0 200 $((before + 1))"

# ---- F6: the usage of a stream is known here, and told to who asked for it ----
source_is slow seed=5,events=12,size=300,in_tokens=31,out_tokens=17
same_as_plain() { # same_as_plain WHAT MEMBERS: with and without flow control
    call -p /plain$chat_path -H "$json" -d "{\"model\":\"m\",\"stream\":true,$2}"
    expect "$1: without" "$code $status" "0 200"
    cp "$work/body" "$work/plain_body"
    call -p /tokens$chat_path -H "$json" -d "{\"model\":\"m\",\"stream\":true,$2}"
    expect "$1: with" "$code $status" "0 200"
    cmp "$work/body" "$work/plain_body" || fail "$1: what the client got is not the same"
}
same_as_plain "F6: usage stays here" "$text"
expect "F6: it was not told" "$(grep -c '"usage":{' "$work/body")" 0
contains "F6: it was asked for" "$(last_of_source slow)" 'include_usage'
expect "F6: it is known" "$(row "tokens_in, tokens_out")" '31\|17'
expect "F6: and settled" "$(flow_state slow m units_60s)" 48
same_as_plain "F6: usage is passed" "\"stream_options\":{\"include_usage\":true},$text"
expect "F6: it was told" "$(grep -c '"usage":{' "$work/body")" 1
expect "F6: and settled" "$(flow_state slow m units_60s)" 96
same_as_plain "F6: unless it was refused" "\"stream_options\":{\"include_usage\":false},$text"
expect "F6: it was not told" "$(grep -c '"usage":{' "$work/body")" 0

# ---- F6: a client leaves near the end of a stream, and at its beginning ----
source_is slow seed=5,events=40,chunk_ms=50,size=20,in_tokens=31,out_tokens=17
leaves_after() { # leaves_after NAME EVENTS MEMBERS
    load "$1" -t -p /tokens$chat_path -d "{\"stream\":true,$text,$3}"
    has_read() { [ "$(grep -cE '^[0-9]+ [0-9]+$' "$work/$1")" -ge "$2" ]; }
    until_true "$1: it reads" has_read "$1" "$2"
    kill -KILL "${loads[$1]}"
    wait "${loads[$1]}" 2>/dev/null
}
before=$(flow_state slow m units_60s)
leaves_after near_end 24 '"model":"m","max_tokens":20'
until_true "F6: read on" flow_reaches slow m units_60s $((before + 48))
until_true "F6: to its end" flow_is_idle slow
expect "F6: and settled" "$(flow_state slow m units_60s) $(of_source slow aborted)" "$((before + 48)) 0"
left_is() { [ "$(ledger "select outcome, tokens_out from calls where outcome = 'client_gone' and model_asked = 'm' and tokens_out > 0")" = "$1" ]; }
until_true "F6: its row" left_is 'client_gone|17'
leaves_after beginning 3 '"model":"early","max_tokens":20000'
aborted_is() { [ "$(of_source slow aborted)" = "$1" ]; }
until_true "F6: closed at once" aborted_is 1
until_true "F6: and given back" flow_is_idle slow
awk '{ exit !($1 >= 10 && $1 < 150) }' <<<"$(flow_state slow early units_60s)" || fail "F6: $(flow_state slow early units_60s) units of a beginning"

# ---- R12: the estimate of a hedge that lost stays ----
on hedged
source_is slow delay_ms=4000
source_is quick in_tokens=20,out_tokens=30
chat ",$text"
expect "R12: the hedge answers" "$code $status $(header x-upstream-name)" "0 200 quick"
expect "R12: kept" "$(attempts "source, coalesce(error, ''), kept_est")" 'slow\|hedge_cancelled\|1 quick\|\|0'
[ "$(flow_state slow "$model" units_60s)" -ge 10 ] || fail "R12: $(flow_state slow "$model" units_60s) units of the loser"
expect "R12: the winner is settled" "$(flow_state quick "$model" units_60s) $(flow_state quick "$model" completed)" "50 1"
expect "R12: nothing runs" "$(flow_state slow "$model" in_flight) $(flow_state slow "$model" completed)" "0 0"

# ---- F5: an upstream that refuses is left alone for a while, and asked again ----
ask_in learning adaptive -c 4 -n 6
load_ends learning
nothing_lost learning
source_is learned tag=busy,times=1,error=compatible_busy
ask_in refused adaptive -c 2 -n 2
is_drained() { [ "$(adaptive_state learned)" = drain ]; }
until_true "F5: DRAIN" is_drained
expect "F5: what it said" "$(flow_state learned m upstream_refusals.saturation) $(flow_state learned m learned.cuts)" "1 1"
asked=$(of_source learned requests)
load_ends refused
nothing_lost refused
ask_in recovering adaptive -c 4 -n 4
load_ends recovering
nothing_lost recovering
expect "F5: not more often than needed" "$(of_source learned requests)" "$((6 + 2 + 1 + 4))"
[ "$asked" -le 8 ] || fail "F5: asked in DRAIN: $asked"
contains "F5: out of DRAIN" "$(adaptive_state learned)" '^(recovery|probing|hold|startup)$'
until_true "F5: nothing is held" flow_is_idle learned

# ---- F11, N9: a slot of the gate and a place in the flow ----
source_is drawing delay_ms=100,size=100
call -p /pictures/v1/images/generations -H "$json" -d "$image"
expect "F11: one" "$code $status" "0 200"
load drawing -p /pictures/v1/images/generations -d "$image" -c 14 -n 28
load_ends drawing
nothing_lost drawing
expect "N1: within both limits" "$(of_source drawing images_open_max)" 2
until_true "N1: slots are back" nothing_in_use
until_true "N1: places are back" flow_is_idle drawing
expect "F11: pictures are counted" "$(flow_state drawing gpt-image-2 units_60s)" 29

for name in "${names[@]}"; do [ "$name" = slow ] || until_true "nothing of $name is held" flow_is_idle "$name"; done
until_true "nothing of any source is taken" sources_are_idle
ledger_is_whole
