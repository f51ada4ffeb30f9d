#!/usr/bin/env bash
# timeout: 150
# What an operator sees and keeps of flow control: the upstream's refusals on the status page, in metrics, in the
# ledger's events and attempts; the diagnosis and its advice, which is followed; the fallback tried; what was learned
# kept over a start of the machine, and over a reload; a file that is damaged. F5 F12 F12a O4
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
start_source quota 'dialect = dashscope'
start_source plain 'dialect = dashscope'
start_source spare ''
penstock_options='workers = 2
threads = 64'
configure_scopes <<'EOF'
[scope learning]
sources = quota
flow = adaptive
[route learning]
path = /learning/
strip_prefix = /learning
scope = learning

[scope bare]
sources = plain
retry_budget = 0
fallback = small-model, spares
[route bare]
path = /bare/
strip_prefix = /bare
scope = bare

[scope spares]
sources = spare
[route spares]
path = /spares/
strip_prefix = /spares
scope = spares
EOF
start_penstock
configured() { "$penstockctl" -c "$work/penstock.conf" "$@"; }
limits() { # limits NAME KEY=VALUE&...: nothing counted, all others off
    curl -sS "$(source_url "$1")/limits/reset?on=1&rpm=0&tpm=0&rps_factor=0&tps_factor=0&burst_floor=0&burst_gain=0&shared_above=0&refused_above=0&refusals_count=0&hints=0&first_ms=0&input_us=0&output_us=0&dialect=dashscope&$2" >"$work/limits"
    grep -q '"on"' "$work/limits" || fail "limits of $1: $(cat "$work/limits")"
}
ask_in() { # ask_in NAME PREFIX MODEL [options of fcgi_client]
    local name=$1 prefix=$2 asked=$3
    shift 3
    load "$name" -p "/$prefix$chat_path" -d "{\"model\":\"$asked\",\"messages\":[{\"role\":\"user\",\"content\":\"How deep is it?\"}]}" \
        -H "X-Penstock-Deadline: ${deadline_s-6}" "$@"
    load_ends "$name"
}
flow() { # flow MODEL PATH: of the status page's JSON
    ctl flows --json >"$work/flows.json"
    sqlite3 :memory: "select json_extract(value, '\$.$2') from json_each(cast(readfile('$work/flows.json') as text), '\$.flows')
        where json_extract(value, '\$.model') = '$1'"
}
metric() { ctl metrics | sed -n "s/^penstock_flow_$1{$2} //p"; } # NAME LABELS
events() { ledger "select count(*) from events where name = 'congestion' and detail like '%$1%'"; }
has_events() { [ "$(events "$1")" -ge "$2" ]; }
booked_calls() { [ "$(ledger "select count(*) from calls where model_asked = '$1'")" = "$2" ]; }

# ---- before anything: a list without flows ----
contains "no flows yet" "$(ctl flows)" '^flows \(quota group / model\): 0$'
contains "no flows yet, for metrics" "$(ctl metrics | grep -c penstock_flow_)" '^0$'

# ---- an upstream with a quota that nobody told ----
limits quota rpm=3
ask_in learning learning m -c 8 -n 8
answered=$(report learning 'status 200')
expect "within the quota" "$answered" 3
until_true "refusals are in the ledger" booked_calls m 8
refused=$(ledger "select count(*) from attempts where source = 'quota' and limit_kind is not null")
[ "$refused" -gt 0 ] || fail "F12: no attempt of $(ledger "select count(*) from attempts where source = 'quota'") has its limit"
expect "F12: each refusal is that of a quota of requests" \
    "$(ledger "select group_concat(distinct error || ' ' || (limit_kind in ('rpm', 'rps'))) from attempts where source = 'quota' and limit_kind is not null")" \
    'Throttling.RateQuota 1'
expect "F12: counted by minute" "$(ledger "select sum(refused) from show_throttles where quota_group = 'quota' and model = 'm'")" "$refused"
# the page
page=$(ctl flows)
contains "the page: who" "$page" '^quota / m: adaptive$'
contains "the page: state" "$page" '^  state         (drain|recovery|probing|startup), [1-9][0-9]* cuts so far$'
contains "the page: learned" "$page" '^  learned       [0-9.]+ in flight .* a second growing by'
contains "the page: refusals" "$page" '^  upstream      refused [0-9]+ rp[ms].*; the last [0-9.]+ s ago, rp[ms]$'
expect "the page: answered" "$(flow m completed)" "$answered"
expect "the page: refusals as in the ledger" "$(($(flow m upstream_refusals.rpm) + $(flow m upstream_refusals.rps)))" "$refused"
expect "the page: nothing held" "$(flow m in_flight) $(flow m waiting.normal)" "0 0"
status_html=$("$client" -s "$work/status.sock" -p '/penstock/status?html')
contains "the page for browsers" "$status_html" '<td>quota</td><td>m</td><td>adaptive</td>'
# events
until_true "F5: the pause is an event" has_events 'state=drain kind=rp% group=quota model=m' 1
until_true "F5: what followed is one" has_events 'state=recovery' 1
expect "at most one event of a kind and second" "$(ledger "select max(n) from (select count(*) as n from events
    where name = 'congestion' group by substr(at, 1, 19), substr(detail, 1, 12))")" 1
# metrics
expect "O4: answered" "$(metric completed_total 'quota_group="quota",model="m"')" "$answered"
expect "O4: refusals" "$(ctl metrics | awk '/^penstock_flow_upstream_refusals_total\{.*model="m",kind="rp[ms]"/ { n += $NF } END { print n }')" "$refused"
limits quota rpm=1 # which is used up at once: no call for that model is answered
curl -s -X POST -H "$json" -d '{"model":"x","messages":[]}' "$(source_url quota)$chat_path" >/dev/null
ask_in unknown learning 'sneaky name' -n 1
expect "O4: what no upstream knows is no label" "$(ctl metrics | grep -c sneaky)" 0
[ -n "$(metric in_flight 'quota_group="quota",model="other"')" ] || fail "O4: no sum of the others"
expect "on the page it is" "$(flow 'sneaky name' completed)" 0

# ---- without flow control: told apart from the ledger, and the advice works ----
limits plain rpm=10
ask_in bare bare n -n 20 -c 20
until_true "all are in the ledger" booked_calls n 20
contains "F12: not told apart" "$(ledger "select distinct limit_kind from attempts where source = 'plain' and limit_kind is not null")" '^requests$'
configured diagnose --last 10m >"$work/diagnosis"
contains "F12: counts" "$(cat "$work/diagnosis")" '^quota group plain, model n: [0-9]+ exchanges, [0-9]+ refused for a limit'
contains "F12: the table" "$(cat "$work/diagnosis")" '^  burst +0  - +suddenly many, at a start'
contains "F12: the advice" "$(grep -A 5 '^quota group plain' "$work/diagnosis" | grep -c .)" '[1-9]'
expect "F12: lines" "$(sed -n '/^quota group plain/,/^quota group quota/s/^    \(flow = [a-z]*\|\[scope bare\]\).*/\1/p' "$work/diagnosis" | sort -u | tr '\n' ' ')" \
    '.scope bare. flow = adaptive '
contains "F12a: what no gateway can do" "$(cat "$work/diagnosis")" 'Batch API'
contains "F12: with -s as well" "$(ctl -c "$work/penstock.conf" diagnose --json)" '"section":"scope bare","line":"flow = adaptive","now":"none"'
"$penstockctl" -s "unix:$work/status.sock" diagnose --last soon 2>"$work/why" && fail "a time that is none was taken"
contains "a time that is none" "$(cat "$work/why")" '"soon" is no time'
sed -i 's/^\[scope bare\]$/&\nflow = adaptive/' "$work/penstock.conf"
ctl reload >/dev/null || fail "the advice cannot be loaded"
expect "F5: a reload keeps what is known" "$(flow m completed)" "$answered"
limits plain ''
ask_in mended bare n -n 1
expect "F12: the flow is there" "$(flow n flow)" adaptive

# ---- F12a: the fallback ----
while IFS='|' read -r words complaint; do
    # shellcheck disable=SC2086 # words
    ctl $words >"$work/said" 2>&1
    expect "what was left out: $words" "$?" 2
    contains "what was left out: $words" "$(head -n 1 "$work/said")" "$complaint"
done <<'END'
try-fallback|^penstockctl: try-fallback needs an argument: SCOPE$
try-fallback bare spare|^penstockctl: try-fallback takes only one argument, SCOPE$
flows bare|^penstockctl: flows takes no argument$
try-fallbacks|^penstockctl: there is no command "try-fallbacks"$
END
configured try-fallback bare >"$work/tried"
expect "F12a: one entry lacks a model" $? 1
contains "F12a: a model" "$(cat "$work/tried")" '^model small-model: good: 200, answered by model'
contains "F12a: a scope without a model" "$(cat "$work/tried")" '^scope spares: not tried: .*--model'
curl -s -X POST "$(source_url spare)/stats/reset" >/dev/null
configured --model qwen try-fallback bare >"$work/tried" || fail "F12a: $(cat "$work/tried")"
contains "F12a: a scope" "$(cat "$work/tried")" '^scope spares: good: 200'
expect "F12a: it was asked there" "$(of_source spare requests)" 1
source_is spare status=404
configured --model qwen try-fallback bare >"$work/tried" && fail "F12a: a bad fallback was called good"
contains "F12a: a bad one" "$(cat "$work/tried")" '^scope spares: bad: 404'

# ---- F5: what was learned outlives the machine's start, which the segment does not ----
none_runs() { [ -z "$(penstock_pids)" ]; }
stop_daemon() {
    kill -TERM "$master_pid"
    wait "$master_pid" 2>/dev/null
    until_true "all have ended" none_runs
    rm -f "/dev/shm/penstock-$gate" # as a start of the machine does
}
file_says() { sed -n "s/^flow group=quota model=m .*[ ]$1=\([^ ]*\).*/\1/p" "$work/flow.state"; }
stop_daemon
[ -f "$work/flow.state" ] || fail "F5: no flow.state"
expect "F5: its mode" "$(stat -c %a "$work/flow.state")" 600
contains "no secrets in it" "$(grep -c 'key-of' "$work/flow.state")" '^0$'
watermark=$(file_says watermark) samples=$(file_says ratio_samples)
[ -n "$watermark" ] || fail "F5: nothing of m in $(cat "$work/flow.state")"
start_penstock
contains "F5: restored" "$(cat "$work/penstock.log")" 'flow_state_restored.*flows=[1-9]'
expect "F5: the watermark" "$(awk -v a="$(flow m learned.watermark)" -v b="$watermark" 'BEGIN { print (a - b < 0.01 && b - a < 0.01) }')" 1
expect "F5: the calibration" "$(flow m estimates.input_calls)" "$samples"
expect "F5: counters begin anew" "$(flow m completed)" 0
limits quota ''
# What was learned may be a quota of three a minute: then the first of them waits for a third of it.
deadline_s=60 ask_in warm learning m -n 1
m_answered() { [ "$(flow m completed)" = 1 ]; }
until_true "F5: and it goes on" m_answered
stop_daemon
head -c 100 "$work/flow.state" >"$work/half" && mv "$work/half" "$work/flow.state"
start_penstock
contains "F5: a damaged file is told" "$(cat "$work/penstock.log")" 'flow_state_unusable.*line 2 is damaged'
contains "F5: and not used" "$(ctl flows)" '^flows \(quota group / model\): 0$'
ask_in cold learning m -n 2
expect "F5: calls go on without it" "$(report cold 'status 200')" 2
stop_daemon
contains "F5: and it is made anew" "$(tail -n 1 "$work/flow.state")" '^end flows=1 check=[0-9a-f]{16}$'
