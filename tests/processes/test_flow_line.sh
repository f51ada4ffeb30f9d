#!/usr/bin/env bash
# timeout: 120
# What becomes of calls that stand in line when things change: a pause that the upstream asks for turns away at once
# who could not outwait it; a reload reaches them;
# who stands in line for a flow is not told of slots; a retry stands in line as any call.
# F7 F9
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
factor=${TEST_TIME_FACTOR:-1}
start_source pausing 'rpm = 6' # one every ten seconds
start_source raised 'rpm = 30' # one every two seconds
start_source refusing 'rpm = 600'
start_source drawing 'rpm = 600
tpm = 60
flow_unit = images' # a picture a second
image_options='enabled = true
max_concurrent_requests = 2
overflow_mode = wait
max_waiting_requests = 20
wait_timeout_seconds = 20'
penstock_options='workers = 2
threads = 64
log_level = warning'
configure() { # configure [lines of the scope "raised"]
    configure_scopes <<END_OF_SCOPES
[scope refusing]
sources = refusing
flow = rate
flow_class = interactive
flow_max_wait_s = 10, 40, 120
backoff_base_s = 20ms
[route refusing]
path = /refusing/
strip_prefix = /refusing
scope = refusing
[scope drawing]
sources = drawing
flow = shaping
flow_warmup_s = 0
flow_max_wait_s = 120, 120, 120
[route drawing]
path = /drawing/
strip_prefix = /drawing
scope = drawing
[scope raised]
sources = raised
flow_class = bulk
${1:-flow = rate}
flow_initial = 0
[route raised]
path = /raised/
strip_prefix = /raised
scope = raised
[scope pausing]
sources = pausing
flow = rate
flow_initial = 1
flow_max_wait_s = 5, 50, 120
[route pausing]
path = /pausing/
strip_prefix = /pausing
scope = pausing
END_OF_SCOPES
}
configure
start_penstock

in_flows() { # in_flows GROUP PATH: of the status page's JSON
    ctl status --json >"$work/status.json"
    sqlite3 :memory: "select sum(json_extract(value, '\$.$2')) from json_each(cast(readfile('$work/status.json') as text),
        '\$.flows') where json_extract(value, '\$.quota_group') = '$1'"
}
in_flows_is() { [ "$(in_flows "$1" "$2")" = "$3" ]; }
in_flows_reaches() { [ "$(in_flows "$1" "$2")" -ge "$3" ]; }
line_up() { # line_up NAME SCOPE [options of fcgi_client]: calls of one model, in the background
    local name=$1 scope=$2
    shift 2
    load "$name" -p "/$scope$chat_path" -d '{"model":"m","messages":[]}' "$@"
}

turned_away() { # turned_away WHAT NAME: by flow control; $told_ms: when to come again, $waited_ms: until then
    contains "$1: refused" "$(cat "$work/$2")" '^Status: 429 '
    contains "$1: by whom" "$(cat "$work/$2")" '"code":"penstock_rate_limit"'
    told_ms=$(tr -d '\r' <"$work/$2" | sed -n 's/^retry-after-ms: //p')
    waited_ms=$(tr -d '\r' <"$work/$2" | sed -n 's/^x-penstock-wait-ms: //p')
}

# ---- F9: Retry-After of the upstream reaches those in line ----
source_is pausing delay_ms=2500
line_up first pausing -H 'X-Mock: tag=line,times=1,status=429,retry_after=60'
until_true "one is under way" in_flows_is pausing in_flight 1
for n in 1 2 3; do line_up "waits_$n" pausing; done # 10, 20 and 30 s, and they may 50
until_true "three wait" in_flows_is pausing waiting.normal 3
load_ends waits_1 waits_2 waits_3
for n in 1 2 3; do
    turned_away "F9: in line" "waits_$n"
    awk '{ exit !($1 > 40000 && $1 <= 60000) }' <<<"$told_ms" || fail "F9: told $told_ms ms, the pause is a minute"
    [ "$waited_ms" -le $((9000 * factor)) ] || fail "F9: in line for $waited_ms ms, refused after 2500"
done
expect "F9: never sent" "$(of_source pausing requests)" 1
load_ends first # it stood in line again, and could not outwait it either
contains "F9: the refused one" "$(cat "$work/first")" '^Status: 429 '
expect "F9: counted" "$(in_flows pausing refused.hopeless)" 4

# ---- F3 F9: a retry takes a new token, within the bound of its class ----
scope_path=/refusing
chat '' -H 'X-Mock: tag=long,times=1,status=429,retry_after=20'
expect "F9: a pause that it may not wait for" "$code $status" "0 429"
no_later_than() { [ "$2" -le $(($3 * factor)) ] || fail "$1: after $2 ms, at most $3 were expected"; }
no_later_than "F9: told at once" "$ended_ms" 3000
contains "F9: told the pause" "$head" '^Retry-After: (1[0-9]|20)$'
expect "F9: sent once" "$(of_source refusing requests)" 1
line_up retried refusing -H 'X-Mock: tag=short,times=1,status=429,retry_after=4'
until_true "F3: it waits in its flow" in_flows_reaches refusing waiting.interactive 1
expect "F3: and is nowhere else" "$(in_flows refusing in_flight)" 0
load_ends retried
contains "F3: it goes then" "$(cat "$work/retried")" '"choices"'
waited_ms=$(tr -d '\r' <"$work/retried" | sed -n 's/^x-penstock-wait-ms: //p')
[ "$waited_ms" -ge 2500 ] || fail "F3: it waited $waited_ms ms, it says"
scope_path=

# ---- F11: pictures that the flow holds back, while slots are free ----
pictures=/drawing/v1/images/generations
several() { echo "{\"model\":\"gpt-image-2\",\"prompt\":\"a weir\",\"n\":$1}"; }
call -p $pictures -H "$json" -d "$(several 8)" # leaves a debt of 7
expect "F11: the first" "$code $status" "0 200"
load patient -p $pictures -d "$image"
says_flow() { ctl queue | grep -Eq '^ +1 +[0-9.]+  flow '; }
until_true "F11: what it waits for" says_flow
expect "F11: nothing scarce is held" "$(status_number used)" 0
load second -p $pictures -d "$(several 8)"
until_true "F11: two wait" in_flows_is drawing waiting.normal 2
call -t -p $pictures -H "$json" -d "$(several 16)" # after 32 s
expect_refusal "F11" 429 penstock_rate_limit
ms=$(sed -n 's/^retry-after-ms: //p' <<<"$head")
awk '{ exit !($1 > 10000 && $1 < 40000) }' <<<"$ms" || fail "F11: told $ms ms"
[ "$(tail -n 1 "$work/times" | cut -d' ' -f1)" -lt $((3000 * factor)) ] || fail "F11: not at once"
kill -KILL "${loads[patient]}" "${loads[second]}"
wait "${loads[patient]}" "${loads[second]}" 2>/dev/null
until_true "F11: nothing is left" in_flows_is drawing waiting.normal 0

# ---- a reload: the new quota, and none, count for who waits already; no other call comes ----
reload_as() { # reload_as WHAT RPM [lines of the scope]
    local began
    line_up "$1" raised -c 12 -n 12 # 24 s
    until_true "$1: they wait" in_flows_reaches raised waiting.bulk 10
    source_lines[raised]="rpm = $2"
    configure "${3:-}"
    began=$(date +%s%N)
    ctl reload >"$work/reload" || fail "$1: $(cat "$work/reload")"
    load_ends "$1"
    nothing_lost "$1"
    [ $((($(date +%s%N) - began) / 1000000)) -le $((10000 * factor)) ] || fail "$1: still one every two seconds"
    until_true "$1: nothing is held" in_flows_is raised in_flight 0
}
reload_as "raised" 600
expect "the new quota" "$(in_flows raised rpm)" 600
source_lines[raised]='rpm = 30'
configure
ctl reload >"$work/reload" || fail "$(cat "$work/reload")"
until_true "the old quota again" in_flows_is raised rpm 30
reload_as "removed" 30 'flow = none'
