#!/usr/bin/env bash
# timeout: 120
# What an operator sees and orders of sources: penstockctl sources, drain, undrain, call, hedge-advice; the
# status pages and metrics; /penstock/calls/ID; rows of attempts whose worker died.
# H7 H13 H17 H18 H19 L2 L3 O3 O4
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
start_source one 'quota_group = acme'
start_source two 'max_in_flight = 40'
penstock_options='workers = 2
threads = 10
log_level = notice'
configure_scopes <<END_OF_SCOPES
[scope main]
sources = one, two
breaker_failures = 3
breaker_cooldown_s = 300
[scope hedged]
sources = one, two
hedge_after_s = 200ms
[route hedged]
path = /hedged/
strip_prefix = /hedged
scope = hedged
[route main]
path = /v1/
scope = main
END_OF_SCOPES
start_penstock
page() { "$client" -s "$work/status.sock" -p "$1" 2>/dev/null | tr -d '\r'; }
state_of() { source_state "$1" state; }

# ---- sources as they are at the start ----
expect "a source is ready" "$(state_of one)" ready
contains "its line" "$(ctl sources)" '^ +one +acme +ready +- +0 +100\.0 '
contains "a group of its own" "$(ctl sources)" '^ +two +two +ready '
contains "the part alone" "$(page '/penstock/status?sources')" 'sources: 2'
contains "html" "$(page '/penstock/status?html')" '<h2>Sources</h2>.*'
for gauge in breaker_state drained in_flight health_ratio; do
    contains "metrics: $gauge" "$(ctl metrics)" "^penstock_source_$gauge\\{source=\"one\"\\} [0-9.]+\$"
done

# ---- drain: by an operator's order no new call, until undrained; over a reload too ----
chat && served_by "before" one
contains "drain" "$(ctl drain one)" '^drained: one gets no new calls'
expect "state" "$(state_of one)" drained
chat && served_by "drained" two
ctl reload || fail "reload"
expect "state after a reload" "$(state_of one)" drained
chat && served_by "drained, after a reload" two
contains "metrics" "$(ctl metrics)" '^penstock_source_drained\{source="one"\} 1$'
ctl drain two >"$work/out" || fail "drain two"
chat
expect "all are drained" "$code $status" "0 503"
contains "undrain" "$(ctl undrain one)" '^undrained: one gets calls again$'
ctl undrain two >"$work/out" || fail "undrain two"
chat && served_by "undrained" one
expect "events" "$(event_count source_drained one) $(event_count source_undrained one)" "1 1"

# ---- a breaker that opened is told, with its reason; undrain closes it ----
source_is one status=500
for _ in 1 2 3; do chat && served_by "failing over" two; done
expect "the breaker" "$(state_of one) $(source_state one breaker)" "open open"
contains "for how long" "$(ctl sources)" '^ +one +acme +open +(29[0-9]|300)\.[0-9] .* [0-9]+ +[0-9]+  [a-z_]+$'
expect "health" "$(($(source_state one health_permille) < 1000))" 1
source_is one ''
ctl undrain one >"$work/out" || fail "undrain"
expect "closed by order" "$(state_of one)" ready

# ---- wrong orders ----
ctl drain nobody >"$work/out" 2>&1 && fail "a source that is not there was drained"
contains "no such source" "$(cat "$work/out")" 'There is no source "nobody"; penstockctl sources lists them'
ctl drain 'a&reload' >"$work/out" 2>&1
expect "no name" "$?" 2
ctl drain >"$work/out" 2>&1
expect "without a name" "$?" 2

# ---- H17: one call by its id ----
source_is one delay_ms=1500
scope_path=/hedged
chat && served_by "hedged" two
scope_path=''
source_is one ''
id=$(booked call_id)
until_true "its attempts" attempts_are_there
page "/penstock/calls/$id?json" | sed '1,/^$/d' >"$work/call.json"
is_json "$work/call.json" || fail "no JSON: $(cat "$work/call.json")"
field() { sqlite3 :memory: "select json_extract(cast(readfile('$work/call.json') as text), '\$.$1')"; }
expect "statistics" "$(field hedges) $(field hedge_won) $(field retries) $(field fallback) $(field source)" "1 1 0 0 two"
expect "generation is the winner's alone" "$(($(field generation_ms) <= $(field total_latency_ms) - 200))" 1
expect "attempts" "$(field 'attempts[0].source') $(field 'attempts[0].error') $(field 'attempts[1].hedge')" "one hedge_cancelled 1"
contains "for people" "$(ctl call "$id")" "^call_id: +$id\$"
contains "as JSON" "$(ctl --json call "$id")" '^\{"ended":true,.*"attempts":\[\{"n":1,'
contains "unknown" "$(page /penstock/calls/pst_nobody)" '"code":"penstock_no_call"'
contains "no id" "$(page '/penstock/calls/a%20b')" '"code":"penstock_bad_request"'
ctl call pst_nobody >"$work/out" 2>&1 && fail "a call that is not there was shown"

# ---- H19: advice ----
ctl hedge-advice main >"$work/out" 2>&1 && fail "advice on a handful of calls"
contains "too few" "$(cat "$work/out")" 'fewer than 100 attempts of chat calls in scope main'
ctl hedge-advice nope >"$work/out" 2>&1 && fail "advice on a scope that is none"
contains "no such scope" "$(cat "$work/out")" 'no attempts of chat calls in scope nope .*is there a scope of that name'
load many -p "$chat_path" -d '{"model":"many","messages":[]}' -c 4 -n 120
load_ends many
nothing_lost many
enough() { [ "$(ledger "select count(*) from calls where model_asked = 'many'")" = 120 ]; }
until_true "the calls are in the ledger" enough
contains "advice" "$(ctl hedge-advice main)" '^ +5 % +[0-9.]+ +[0-9.]+$'
contains "advice by the configuration" "$("$penstockctl" -c "$work/penstock.conf" --json hedge-advice main)" \
    '"scope":"main","stream":false,"attempts":1[0-9]+,.*"extra_load_percent":5,"hedge_after_ms":[0-9]+,"p99_ms":[0-9]+'

# ---- L2: the view ----
contains "show_sources" "$(ledger "select name, quota_group, max_in_flight, attempts_last_hour > 100, hedges_last_hour from show_sources")" \
    '^one\|acme\|0\|1\|0$'

# ---- L3: a worker dies in the middle of a race: its attempts end with it ----
source_is one delay_ms=60000
source_is two delay_ms=60000
load dying -p "/hedged$chat_path" -d '{"model":"dying","messages":[]}' -c 1 -n 1
running() { [ "$(ledger "select count(*) from attempts where ended_at is null")" = "${1:-2}" ]; }
until_true "both attempts are in the ledger while they run" running 2
victim=$(ledger "select distinct pid from attempts where ended_at is null")
kill -KILL "$victim" || fail "no worker $victim"
until_true "no attempt runs any more" running 0
expect "closed" "$(ledger "select n, source, hedge, error from attempts where pid = $victim and error = 'worker_died' order by n" | tr '\n' ' ')" \
    '1\|one\|0\|worker_died 2\|two\|1\|worker_died '
load_ends dying
until_true "nothing is in flight any more" sources_are_idle
all_sources_well
chat && served_by "afterwards" one
ledger_is_whole
