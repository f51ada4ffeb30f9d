#!/usr/bin/env bash
# timeout: 60
# What flow control has for each client: so many may wait of one, told apart by the key it sends, else by its address,
# and nothing of a key is to be found anywhere; and who is refused learns when to come again. F8 F9 L7 N6
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
start_source narrow 'rpm = 60000
max_concurrency = 1'
start_source pushed ''
start_source spent ''
start_source burst 'dialect = dashscope'
penstock_options='workers = 2
threads = 32
log_level = debug'
while read -r scope more; do
    routed_scope "$scope" "$scope" "$more"
done >"$work/scopes" <<'END'
narrow flow=rate;flow_max_waiting_per_client=2
pushed flow=adaptive;call_deadline_s=4
burst flow=adaptive;call_deadline_s=4
spent flow=adaptive;call_deadline_s=1;backoff_base_s=60;backoff_max_s=60
END
configure_scopes <"$work/scopes"
start_penstock
flow() { # flow GROUP PATH: of the status page's JSON, summed up over its models
    ctl flows --json >"$work/flows.json"
    sqlite3 :memory: "select sum(json_extract(value, '\$.$2')) from json_each(cast(readfile('$work/flows.json') as text),
        '\$.flows') where json_extract(value, '\$.quota_group') = '$1'"
}

# ---- F8: so many of one client ----
scope_path=/narrow
document='{"model":"m","messages":[]}'
source_is narrow delay_ms=$((4000 * ${TEST_TIME_FACTOR:-1})) # longer than all below takes to come
runs() { [ "$(flow narrow in_flight)" = 1 ]; }
wait_so_many() { [ "$(flow narrow waiting.normal)" = "$1" ]; }
load holder -p "/narrow$chat_path" -d "$document" -H 'Authorization: Bearer key-of-holder'
until_true "one runs" runs
secret=sk-much-too-secret
waiting=0
while read -r name arguments; do
    eval "set -- $arguments"
    load "$name" -p "/narrow$chat_path" -d "$document" -c 5 -n 5 "$@"
    waiting=$((waiting + 2))
    until_true "$name: two wait" wait_so_many $waiting
    three_are_refused() { [ "$(flow narrow refused.client)" = $((waiting * 3 / 2)) ]; }
    until_true "$name: three do not" three_are_refused
done <<END
anna -H "Authorization: Bearer $secret" -P REMOTE_ADDR=192.0.2.1
bert -H "Authorization: Bearer $secret-too" -P REMOTE_ADDR=192.0.2.1
cora -H "X-Api-Key: $secret" -P REMOTE_ADDR=192.0.2.1
here -P REMOTE_ADDR=192.0.2.1
there -P REMOTE_ADDR=192.0.2.2
END
call -p "/narrow$chat_path" -H "$json" -H "Authorization: Bearer $secret" -d "$document"
expect_refusal "one more of the first" 429 penstock_rate_limit
contains "why" "$(body)" 'of this client'
contains "when to come again" "$head" '^Retry-After: [0-9]+$'
expect "the others still wait" "$(flow narrow waiting.normal)" 10
source_is narrow ''
load_ends holder anna bert cora here there
for name in anna bert cora here there; do
    expect "$name: the two that waited" "$(report $name 'status 200') $(report $name 'status 429')" "2 3"
done
chat '' -H "Authorization: Bearer $secret"
expect "afterwards" "$code $status" "0 200"

# ---- L7, N6: nothing of a key is kept, nor under another name ----
is_written() { [ "$(ledger "select count(*) from calls where scope = 'narrow'")" = 28 ]; }
until_true "all calls are in the ledger" is_written
expect "the ledger's clients" "$(ledger "select distinct client from calls")" ''
for page in /penstock/status /penstock/status?full /penstock/metrics; do
    "$client" -s "$work/status.sock" -p "$page" >>"$work/pages"
done
grep -aq 'quota_group\|narrow' "$work/pages" || fail "no status page"
for file in "$work/pages" "$work"/ledger.db* "$work/penstock.log"; do
    [ -e "$file" ] || continue
    ! grep -aq "$secret" "$file" || fail "N6: a key is in $file"
done

# ---- F9: refused by the upstream, and then by its flow ----
source_is pushed error=openai_slow_down
source_is burst error=dashscope_burst
source_is spent error=openai_slow_down
# spent: a backoff of up to a minute does not fit (but for one time in sixty), and its flow is not asked again
for name in pushed burst spent; do
    scope_path=/$name
    chat
    expect "$name: refused" "$code $status" "0 429"
    paused_ms=$(flow $name paused_ms)
    told_ms=$(header retry-after-ms)
    expect "$name: it may come again" "$(header x-should-retry)" true
    # As long as the flow is held back, which it still is: it is the same instant, seen a moment later.
    awk -v told="$told_ms" -v paused="$paused_ms" 'BEGIN { exit !(paused > 0 && told >= paused && told <= paused + 3000) }' ||
        fail "$name: told to come in $told_ms ms, its flow is held back for $paused_ms ms"
done
