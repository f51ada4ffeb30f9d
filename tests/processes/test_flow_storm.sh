#!/usr/bin/env bash
# timeout: 240
# Quotas are kept while workers die: four workers, one of them killed again and again; chats, long texts, streams,
# clients that leave and refusals, in turns that use up the requests or the tokens; `shaping` and `adaptive` (told the
# quotas) at an upstream each. What was sent is judged by the upstreams' own logs, in every window (flow_windows.awk);
# at the end nothing is held and everything was settled. And the judge does object where there is something to object.
#   SECONDS_LONG=1800   the proof (make flow-storm): any 60 s of half an hour, a kill every 5 s. Short, in every day's
#                       check, shorter windows count as well, against what the bucket lets through.
# F4 F5 B2 N7
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
seconds=${SECONDS_LONG:-28}
kill_every=3 turn=7
[ "$seconds" -le 300 ] || { kill_every=5 turn=75; }
rpm=600 tpm=400000
strategies=(shaping adaptive)
log_sends=yes # to $work/NAME.sent
for name in "${strategies[@]}" open; do
    start_source "$name" "rpm = $rpm
tpm = $tpm"
    curl -s "$(source_url "$name")/limits?on=1&first_ms=150&input_us=50&output_us=3000" >"$work/limits"
    grep -q '"on":true' "$work/limits" || fail "limits of $name: $(cat "$work/limits")"
done
penstock_options='workers = 4
threads = 320
log_level = warning'
for name in "${strategies[@]}" open; do
    more="flow=${name/open/none};flow_class_header_max=interactive;flow_max_wait_s=60,60,120"
    [ "$name" != shaping ] || more+=';flow_warmup_s=0'
    routed_scope "$name" "$name" "$more"
done >"$work/scopes"
configure_scopes <"$work/scopes"
start_penstock
workers_are() { [ "$(workers | wc -l)" = "$1" ]; }
until_true "four workers" workers_are 4

# ---- the load ----
words() { # words BYTES: English, all the same
    awk -v bytes="$1" 'BEGIN { while (length(text) < bytes) text = text "The keeper of the weir opened a gate before the water rose. "
        print substr(text, 1, bytes) }'
}
document() { printf '{"model":"m","stream":%s,"messages":[{"role":"user","content":"%s"}]}' "$2" "$(words "$1")" >"$work/$3"; }
document 1200 false chat
document 1600 true stream
document 32000 false long
document 24000 true long_stream
reports=()
begin_load() { # begin_load NAME SCOPE CLASS DOCUMENT OUT_TOKENS SECONDS [options of fcgi_client]
    local name=$1 scope=$2 class=$3 document=$4 out=$5 lasts=$6
    shift 6
    load "$name" -p "/$scope$chat_path" -f "$work/$document" -H "X-Penstock-Class: $class" -H "X-Mock: out_tokens=$out" \
        -S "$lasts" -T 150 -R 20 "$@"
    running+=("$name")
    reports+=("$work/$name")
}
chats() { # the requests are what is short
    begin_load "$1.chats.$round" "$1" interactive chat 40 "$2" -c 16
    begin_load "$1.streams.$round" "$1" normal stream 90 "$2" -c 4
    begin_load "$1.leavers.$round" "$1" interactive chat 40 "$2" -c 6 -l 60 -m 2500
}
texts() { # the tokens are
    begin_load "$1.texts.$round" "$1" bulk long 600 "$2" -c 4
    begin_load "$1.text_streams.$round" "$1" normal long_stream 400 "$2" -c 3
    begin_load "$1.text_leavers.$round" "$1" bulk long_stream 800 "$2" -c 2 -l 60 -m 6000
}
both() {
    chats "$1" "$2"
    texts "$1" "$2"
}
quiet() { # a bucket is full afterwards; what is refused gets its tokens back
    source_is "$1" "tag=busy$round,times=1,error=compatible_busy"
    begin_load "$1.few.$round" "$1" normal chat 40 $((($2 + 2) / 3)) -R 1
}
kill_workers() { # until killed itself; what it has killed is one number a line
    local monitor children victim i
    monitor=$(ctl status --json | tr '{' '\n' | sed -n '/"role": *"monitor"/s/.*"pid": *\([0-9]*\).*/\1/p')
    while sleep "$kill_every"; do # the pace is the test, nothing is awaited
        read -r -a children </proc/"$master_pid"/task/"$master_pid"/children
        for i in "${!children[@]}"; do [ "${children[i]}" != "$monitor" ] || unset "children[i]"; done
        children=("${children[@]}")
        victim=${children[RANDOM % (${#children[@]} + (${#children[@]} == 0))]:-}
        [ -z "$victim" ] || { kill -KILL "$victim" && echo "$victim"; }
    done
}
kill_workers >"$work/killed" 2>/dev/null &
killer=$!
pids+=("$killer")
turns=(quiet chats texts both)
begun=$SECONDS
for ((round = 0; SECONDS - begun < seconds; round++)); do
    running=()
    for name in "${strategies[@]}"; do
        source_is "$name" ''
        "${turns[round % 4]}" "$name" "$turn"
    done
    load_ends "${running[@]}"
done
kill "$killer"
wait "$killer" 2>/dev/null
kills=$(wc -l <"$work/killed")
cat "${reports[@]}" | awk '/^(status [0-9]+|left|broken|refused|late|ended_with_error) [0-9]+$/ {
    n = $NF; sub(/ [0-9]+$/, ""); sum[$0] += n } END { for (what in sum) print what, sum[what] }' >"$work/all"
echo "workers killed: $kills; calls: $(sort "$work/all" | tr '\n' ',')"
[ "$kills" -ge $((seconds / kill_every / 2)) ] || fail "only $kills workers were killed"
# 429: after a refusal the controller is slow for a while, and who would wait for too long is told so.
expect "calls neither answered nor cut by a kill" "$(other_than all 'status 200' 'status 429' left broken refused)" 0
expect "errors inside answers" "$(report all ended_with_error)" "$(report all 'status 429')"
[ "$(report all 'status 200')" -gt "$(report all broken)" ] || fail "most calls broke"
[ "$(report all 'status 200')" -gt "$(report all 'status 429')" ] || fail "most calls were refused: keeping a quota is no art then"
expect "deaths that nobody wanted" "$(grep -o 'event=child_ended.*' "$work/penstock.log" | grep -vc 'was killed by signal 9')" 0

# ---- nothing is held, nothing is missing ----
until_true "four workers again" workers_are 4
flows() { # flows GROUP PATH: of the status page's JSON
    ctl flows --json >"$work/flows.json"
    sqlite3 :memory: "select json_extract(value, '\$.$2') from json_each(cast(readfile('$work/flows.json') as text), '\$.flows')
        where json_extract(value, '\$.quota_group') = '$1'"
}
flow_is() { [ "$(flows "$1" "$2")" = "$3" ]; }
is_idle() { flow_is "$1" in_flight 0 && flow_is "$1" waiting.interactive 0 && flow_is "$1" waiting.normal 0 && flow_is "$1" waiting.bulk 0; }
is_full() { [ "$(flows "$1" requests_in_hand)" -ge $((rpm / 40 - 1)) ] && [ "$(flows "$1" units_in_hand)" -ge $((tpm / 40 - 1)) ]; }
has_ended() { [ "$(of_source "$1" calls_open_now)" = 0 ]; }
for name in "${strategies[@]}"; do
    until_true "$name: nothing waits or runs" is_idle "$name"
    until_true "$name: nothing runs at the upstream" has_ended "$name"
    granted=$(($(flows "$name" granted.interactive) + $(flows "$name" granted.normal) + $(flows "$name" granted.bulk)))
    sent=$(wc -l <"$work/$name.sent")
    refused=$(awk '$3 >= 400' "$work/$name.sent" | wc -l)
    completed=$(flows "$name" completed)
    buried=$(flows "$name" buried)
    echo "$name: granted $granted, sent $sent, of them refused $refused, settled $completed; buried $buried, left waiting $(flows "$name" cancelled)"
    [ "$sent" -le "$granted" ] || fail "$name: $sent sent, but only $granted granted"
    [ $((completed + refused)) -le "$sent" ] || fail "$name: more settled than sent"
    [ $((completed + refused + buried)) -ge "$sent" ] || fail "$name: some of what was sent was never settled"
done
until_true "nothing of any source is taken" sources_are_idle
ledger_is_whole
# Without deaths: what is settled is what was used, to the token, and then the buckets fill.
for name in "${strategies[@]}"; do
    before=$(wc -l <"$work/$name.sent")
    completed=$(flows "$name" completed)
    begin_load "$name.calm" "$name" normal chat 40 1 -c 2
    load_ends "$name.calm"
    nothing_lost "$name.calm"
    expect "$name: each settled once" "$(($(flows "$name" completed) - completed))" "$(($(wc -l <"$work/$name.sent") - before))"
done
for name in "${strategies[@]}"; do until_true "$name: nothing is owed" is_full "$name"; done

# ---- the judge ----
late_ms=$((1000 * ${TEST_TIME_FACTOR:-1}))
any=$((seconds <= 300))
judge() { # judge LOG; the controller's pace is at most a tenth above the quota's
    awk -v rpm=$rpm -v tpm=$tpm -v any="$any" -v pace=1.1 -v late_ms="$late_ms" -f "$(dirname "$0")/flow_windows.awk" <(sort -nk2 "$1") <(sort -n "$1")
}
for name in "${strategies[@]}"; do
    echo "== $name"
    judge "$work/$name.sent" || fail "$name sent more than its quotas"
done
# It objects: to one send too many, to as many tokens too many, and to an upstream that nothing is kept from.
fullest=$(sort -n "$work/shaping.sent" | awk -v rpm=$rpm '{ at[NR] = $1; for (i = i ? i : 1; at[i] <= $1 - 60e9; i++) continue
    if (NR - i + 1 > most) { most = NR - i + 1; when = $1 } } END { printf "%d %.0f\n", rpm - most, when }')
read -r missing when <<<"$fullest"
crowd() { # crowd N TOKENS: so many more in the fullest minute
    cp "$work/shaping.sent" "$work/crowd"
    for ((i = 0; i < $1; i++)); do echo "$when $((when + 1000)) 200 $2 0 done -"; done >>"$work/crowd"
}
any=0
crowd "$missing" 0
judge "$work/crowd" >"$work/judged" || fail "the judge: a full minute is none too many: $(tail -n 3 "$work/judged")"
crowd $((missing + 1)) 0
judge "$work/crowd" >"$work/judged" && fail "the judge has nothing to say to one send too many"
contains "the judge" "$(cat "$work/judged")" "^violation: sends: $((rpm + 1)) of $rpm "
crowd 1 $((2 * tpm))
judge "$work/crowd" >"$work/judged" && fail "the judge has nothing to say to twice the tokens"
contains "the judge" "$(cat "$work/judged")" '^violation: tokens: '
begin_load open open normal chat 40 6 -c 16
load_ends open
any=1
judge "$work/open.sent" >"$work/judged" && fail "without flow control nothing is too much"
contains "the judge, without flow control" "$(cat "$work/judged")" '^violation: sends'
