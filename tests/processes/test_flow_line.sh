#!/usr/bin/env bash
# timeout: 120
# What becomes of calls that stand in line when things change: a pause that the upstream asks for turns away at once
# who could not outwait it.
# F7 F9
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
factor=${TEST_TIME_FACTOR:-1}
start_source pausing 'rpm = 6' # one every ten seconds
penstock_options='workers = 2
threads = 64
log_level = warning'
configure() {
    configure_scopes <<'END_OF_SCOPES'
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
expect "F9: counted" "$(in_flows pausing refused.hopeless)" 3
kill -KILL "${loads[first]}"
