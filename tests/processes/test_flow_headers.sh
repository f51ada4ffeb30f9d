#!/usr/bin/env bash
# timeout: 240
# beside: others
# The upstream's own words about its quotas, between real processes: nobody has configured any, and yet no call is
# refused; another consumer of the account makes calls slow; who is turned away here is told of our quota. F5 F7 F9
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
start_source shaped 'limit_headers = rely'
start_source learned ''
start_source account 'limit_headers = rely'
start_source distrusted 'limit_headers = ignore'
penstock_options='workers = 2
threads = 128
log_level = warning'
while read -r scope sources more; do
    routed_scope "$scope" "$sources" "$more"
done >"$work/scopes" <<'END'
shaping shaped flow=shaping;flow_warmup_s=0;flow_max_wait_s=60,60,60
adaptive learned flow=adaptive;flow_max_wait_s=60,60,60
rate account flow=rate;flow_initial=1
ignoring distrusted flow=adaptive;flow_max_wait_s=60,60,60
END
configure_scopes <"$work/scopes"
start_penstock
limits() { # limits NAME [KEY=VALUE&...]: prints settings and counts
    curl -sS "$(source_url "$1")/limits?${2:-}"
}
limited() { limits "$1" | grep -o "\"$2\":[0-9]*" | tail -n 1 | cut -d: -f2; } # NAME COUNTER
flow() { # flow ACCOUNT PATH: of the status page's JSON
    ctl flows --json >"$work/flows.json"
    sqlite3 :memory: "select json_extract(value, '\$.$2') from json_each(cast(readfile('$work/flows.json') as text), '\$.flows')
        where json_extract(value, '\$.quota_group') = '$1'"
}
document='{"model":"m","messages":[{"role":"user","content":"How far is it?"}]}'
ask_in() { # ask_in NAME SCOPE [options of fcgi_client]
    local name=$1 scope=$2
    shift 2
    load "$name" -p "/$scope$chat_path" -d "$document" "$@"
}
ask_once() { # ask_once SCOPE [options of fcgi_client]
    local scope=$1
    shift
    call -p "/$scope$chat_path" -H "$json" -d "$document" "$@"
}

# ---- a quota that only the upstream tells: sixty a minute ----
for name in shaped learned distrusted; do
    limits "$name" 'on=1&rpm=60&hints=1&first_ms=0&input_us=0&output_us=0' >"$work/limits"
    contains "limits of $name" "$(cat "$work/limits")" '"on":true'
done
for _ in 1 2 3; do ask_once shaping; done
until_true "F7: three answers told it" [ "$(flow shaped rpm)" = 60 ]
ask_in shaping shaping -c 6 -S 35
ask_in adaptive adaptive -c 6 -S 35
ask_in ignoring ignoring -c 6 -S 35
load_ends shaping adaptive ignoring
[ "$(limited distrusted rpm)" -ge 1 ] || fail "the load is none: who does not hear the headers was not refused either"
expect "ignore: nothing was told" "$(flow distrusted rpm)$(flow distrusted requests_left_upstream)" ''
for scope in shaping adaptive; do
    source=shaped
    [ $scope = shaping ] || source=learned
    expect "F7: $scope: all were answered" "$(other_than $scope 'status 200')" 0
    expect "F7: $scope: none was refused upstream" "$(limited $source rpm)" 0
    [ "$(limited $source admitted)" -ge $((60 / ${TEST_TIME_FACTOR:-1} / 2)) ] || fail "F7: $scope: only $(limited $source admitted) in 35 s"
    expect "F7: $scope: the quota" "$(flow $source rpm) $(flow $source rpm_from)" "60 headers"
    expect "F7: $scope: what is left" "$(flow $source requests_left_upstream)" "[0-9]+"
done
contains "F7: for people" "$(ctl flows)" '^  quotas        sends from its headers \([0-9]+ left there\); tokens not known$'
contains "F7: for people: of" "$(ctl flows)" '^  last 60 s     [0-9]+ sends of 60,'

# ---- another consumer of the account ----
account_tells() { source_is account "limit_requests=600,remaining_requests=$1"; }
account_tells 600
for _ in 1 2 3 4; do ask_once rate; done
expect "F7: the account's quota" "$(flow account rpm) $(flow account rpm_from)" "600 headers"
sends_in_5_s() { # how many calls went upstream
    local before
    before=$(of_source account requests)
    ask_in "$1" rate -c 8 -S 5
    load_ends "$1"
    expect "F7: $1: all were answered" "$(other_than "$1" 'status 200')" 0
    sends=$(($(of_source account requests) - before))
}
sends_in_5_s alone
alone=$sends
account_tells 5
ask_once rate # the news
sends_in_5_s "not alone"
shared=$sends
account_tells 600
ask_once rate
sends_in_5_s "alone again"
# ten a second, and two of them
[ "$shared" -le 25 ] || fail "F7: $shared calls in 5 s with little left, $alone before"
[ "$shared" -ge 2 ] || fail "F7: only $shared calls in 5 s with little left"
[ "$alone" -ge $((2 * shared)) ] || fail "F7: $alone calls in 5 s alone, $shared with another consumer"
[ "$sends" -ge $((2 * shared)) ] || fail "F7: $sends calls in 5 s alone again, $shared with another consumer"

# ---- who is turned away ----
source_is account 'limit_requests=6,remaining_requests=6'
for _ in 1 2 3; do ask_once rate; done
expect "F7: a quota that shrank" "$(flow account rpm)" 6
for _ in 1 2 3 4 5 6 7 8; do # what was saved up goes first
    ask_once rate -H 'X-Penstock-Deadline: 1'
    [ "$status" = 200 ] || break
done
expect_refusal "F9" 429 penstock_rate_limit
contains "F9: when" "$head" '^Retry-After: ([1-9]|10|11)$'
contains "F9: when, to the millisecond" "$head" '^retry-after-ms: [1-9][0-9]{3,4}$'
contains "F7: our quota" "$head" '^x-ratelimit-limit-requests: 6$'
contains "F7: what is left of it" "$head" '^x-ratelimit-remaining-requests: 0$'
contains "F7: until it is full" "$head" '^x-ratelimit-reset-requests: [1-9][0-9]*ms$'
expect "F7: of tokens nobody told" "$(header x-ratelimit-limit-tokens)" ''
for name in "${names[@]}"; do until_true "nothing of $name is taken" source_state_is "$name" in_flight 0; done
ledger_is_whole
