#!/usr/bin/env bash
# More calls than there are threads want to wait in a flow: the reserve stays free for calls of other scopes, who finds
# no thread to wait in is told when to come again; and models that somebody made up cost others nothing. F1 F9 N7
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
start_source narrow 'rpm = 60000
max_concurrency = 1'
start_source quick 'rpm = 60000'
penstock_options='workers = 2
threads = 8'
configure_scopes <<'END_OF_SCOPES'
[scope held]
sources = narrow
flow = rate
[route held]
path = /held/
strip_prefix = /held
scope = held

[scope other]
sources = quick
flow = rate
[route other]
path = /other/
strip_prefix = /other
scope = other
END_OF_SCOPES
start_penstock
document='{"model":"m","messages":[]}'
flow() { # flow GROUP MODEL PATH: of the status page's JSON
    ctl flows --json >"$work/flows.json"
    sqlite3 :memory: "select json_extract(value, '\$.$3') from json_each(cast(readfile('$work/flows.json') as text), '\$.flows')
        where json_extract(value, '\$.quota_group') = '$1' and json_extract(value, '\$.model') = '$2'"
}

# ---- threads ----
source_is narrow delay_ms=120000
load holder -p "/held$chat_path" -d "$document"
runs() { [ "$(flow narrow m in_flight)" = 1 ]; }
until_true "one runs" runs
# One worker may have refused a whole lot while the other had a thread left: more come until both are full.
offers=()
offer() {
    [ "$(flow narrow m waiting.normal)" = 12 ] && return # 2 workers, 8 threads of which 25 % are kept
    offers+=("many${#offers[@]}")
    load "${offers[-1]}" -p "/held$chat_path" -d "$document" -c 20 -n 20
    false
}
until_true "as many wait as may" offer
scope_path=/held
chat ',"model":"m"'
expect_refusal "no thread to wait in" 429 penstock_rate_limit
contains "when to come again" "$head" '^Retry-After: [0-9]+$'
contains "why" "$(body)" 'no thread left'
are_counted() { [ "$(flow narrow m refused.threads)" -ge 1 ]; }
until_true "they are counted" are_counted
scope_path=/other
for _ in 1 2 3 4 5; do
    chat
    expect "another scope meanwhile" "$code $status" "0 200"
done
expect "still as many" "$(flow narrow m waiting.normal)" 12
source_is narrow '' # for those that come after the holder
kill "${loads[holder]}" # its client leaves: the next one runs
load_ends "${offers[@]}"
served=0
for name in "${offers[@]}"; do
    served=$((served + $(report "$name" 'status 200')))
    expect "$name: nothing else" "$(other_than "$name" 'status 200' 'status 429')" 0
done
expect "those that waited" $served 12
scope_path=/held
free() { [ "$(flow narrow m waiting.normal) $(flow narrow m in_flight)" = "0 0" ]; }
until_true "nobody waits" free
chat
expect "afterwards" "$code $status" "0 200"

# ---- models that nobody has ----
source_is quick status=404
for round in $(seq 5); do
    for n in $(seq 40); do
        printf '{"model":"made-up-%s","messages":[]}\n' "$((round * 100 + n))"
    done
done >"$work/made-up"
while read -r document; do
    call -p "/other$chat_path" -H "$json" -d "$document"
done <"$work/made-up"
source_is quick ''
scope_path=/other
chat
expect "a real one after 200 made-up ones" "$code $status" "0 200"
expect "it has a record of its own" "$(flow quick "$model" completed)" 1
echo "threads and records of flows: ok"
