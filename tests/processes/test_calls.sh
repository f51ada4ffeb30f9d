#!/usr/bin/env bash
# timeout: 200
# Calls with several sources, each a real upstream: what is tried again and what is not, deadlines, fallback,
# breakers that all workers share, sources that die and come back.
# H2 H3 H4 H5 H7 H20 B4 B5 B6 I1 I2 I7 I8 I10 I12 I13 I14 I15 I16 I21 I27 I34 I39 I52
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
factor=${TEST_TIME_FACTOR:-1}
for name in north south watched throttled1 throttled2 credential1 credential2 poor rich other broken steady callers daily; do
    case $name in
    watched) lines='ttft_timeout_s = 1
stream_idle_timeout_s = 1' ;;
    north) lines='timeout_s = 20
stream_idle_timeout_s = 1
model_aliases = alias=north-model' ;;
    south) lines='model_aliases = alias=south-model' ;;
    callers | daily) lines=keyless ;;
    *) lines='' ;;
    esac
    start_source "$name" "$lines"
done
tls=''
if command -v caddy >/dev/null && command -v openssl >/dev/null; then
    tls=yes
    start_source veiled "ca_file = $work/ca.pem"
    start_tls veiled
    names+=(stranger) ports[stranger]=${ports[veiled]} urls[stranger]=${urls[veiled]} source_lines[stranger]=''
fi
start_source burst 'dialect = dashscope'
start_source azure 'dialect = azure'
penstock_options='workers = 4
log_level = warning'
image_options='enabled = true
max_concurrent_requests = 2
overflow_mode = wait'
never_open='breaker_failures = 1000
breaker_share_calls = 100000
backoff_base_s = 20ms'
while read -r scope sources more; do
    [ -n "$scope" ] || continue
    [[ $more == *breaker_* ]] || more+=";$never_open"
    routed_scope "$scope" "$sources" "$more"
done >"$work/scopes" <<SCOPES
${tls:+secure stranger,veiled,south}
pair north,south
again north,south retry_unknown_outcome=true
hurried north,south call_deadline_s=1
watch watched,south
watchagain watched,south retry_unknown_outcome=true
patient throttled1,throttled2 call_deadline_s=2
single burst retry_budget=0
azure azure,south retry_budget=0
keys credential1,credential2
own callers,south
alone daily
daily daily,south
money poor,rich
elsewhere other fallback=mini,pair;retry_budget=0
breaker broken,steady breaker_failures=3;breaker_cooldown_s=2;backoff_base_s=20ms
strict north,south balance=weighted;breaker_failures=5;breaker_cooldown_s=1;backoff_base_s=20ms
strong north,south balance=weighted;breaker_failures=5;breaker_cooldown_s=1;backoff_base_s=20ms;retry_unknown_outcome=true;retry_budget=5
SCOPES
configure_scopes <"$work/scopes"
start_penstock
on() { scope_path=/$1; } # on SCOPE: the calls that follow
on pair
stream=',"stream":true'
no_later_than() { # no_later_than WHAT MS LIMIT
    [ "$2" -le $(($3 * factor)) ] || fail "$1: after $2 ms, at most $3 were expected"
}
no_sooner_than() { [ "$2" -ge "$3" ] || fail "$1: after $2 ms, at least $3 were expected"; }

# ---- H3: on another source, in the same call ----
while read -r keys error; do
    for how in '' "$stream"; do
        all_sources_well
        source_is north "$keys"
        chat "$how"
        served_by "H3: $keys$how" south
        expect_requests_of "H3: $keys$how" "north south" "1 1"
        expect "H3: $keys: attempts told" "$(header x-penstock-attempts)" 2
        expect "H3: $keys: source told" "$(header x-penstock-source)" south
        expect "H3: $keys: call" "$(booked "source, outcome, attempts, retries, hedges, fallback")" 'south\|ok\|2\|[01]\|0\|0'
        expect "H3: $keys: attempts" "$(attempts "n, source, hedge, coalesce(status, 0), coalesce(error, '')")" \
            "1\\|north\\|0\\|$error 2\\|south\\|0\\|200\\|"
    done
done <<'END'
status=500 500\|server_error
error=openai_overloaded 503\|server_is_overloaded
error=openai_requests,retry_after_ms=1 429\|rate_limit_exceeded
error=openai_slow_down,retry_after_ms=1 429\|slow_down
status=502,dialect=html 502\|[a-z_]+
END
# I2, I7, I8: an error in the stream before any content is the answer's
while read -r path members keys; do
    all_sources_well
    source_is north "$keys"
    number=$((number + 1)) model=call-$number
    call -p "/pair$path" -H "$json" -d "{\"model\":\"$model\",\"stream\":true,$members}"
    expect "I7: $path: end" "$code $status" "0 200"
    contains "I7: $path: the good stream" "$(body)" '"south '
    expect "I7: $path: nothing of the other" "$(grep -c 'north\|event: error\|"error":{\|failed' "$work/body")" 0
    expect "I7: $path: begins once" "$(grep -c '"type":"response.created"\|"type":"message_start"\|"delta":{"role"' "$work/body")" 1
    expect_requests_of "I7: $path" "north south" "1 1"
done <<'END'
/v1/chat/completions "messages":[] error_event=1,error=openai_overloaded
/v1/responses "input":"x" error_event=2,error=openai_server_error,failed
/v1/responses "input":"x" error_event=4,error=openai_overloaded
/v1/messages "messages":[] error_event=0,error=anthropic_overloaded
END
# the connection is refused: nothing was sent
all_sources_well
kill_source north
chat
served_by "H3: connection refused" south
expect "H3: connection refused: attempts" "$(attempts "n, source, coalesce(status, 0)")" '1\|north\|0 2\|south\|200'
run_source north
# H2: what would be refused everywhere is not tried everywhere
all_sources_well
source_is north error=openai_context
chat
expect "H2: the caller's fault" "$code $status" "0 400"
contains "H2: the caller's fault" "$(body)" '"code":"context_length_exceeded"'
expect_requests_of "H2: the caller's fault" "north south" "1 0"
# the budget is kept, the upstream's own words reach the caller
all_sources_well
source_is north status=500
source_is south status=500
chat
expect "H3: all fail" "$code $status" "0 500"
contains "H3: all fail: whose words" "$(body)" '"type":"server_error"'
expect "H3: all fail: no more tries" "$(header x-should-retry)" false
expect "H3: budget of 2" "$(($(of_source north requests) + $(of_source south requests)))" 3
expect "H3: all fail: call" "$(booked "outcome, status, attempts, retries")" 'upstream_error\|500\|3\|2'
# a body of 3 MB lies in the spool and is sent twice
all_sources_well
source_is north status=500
head -c 3000000 /dev/zero | tr '\0' x >"$work/large"
(printf '{"model":"large","messages":[],"pad":"'; cat "$work/large"; printf '"}') >"$work/large.json"
call -p /pair$chat_path -H "$json" -f "$work/large.json"
expect "I53: a spooled body" "$code $status" "0 200"
for name in north south; do
    contains "I53: the whole body at $name" "$(last_of_source $name)" "\"sha256\":\"$(sum "$work/large.json")\""
done

# ---- H3: throttling ----
all_sources_well
for name in throttled1 throttled2; do source_is $name error=openai_requests,retry_after=30,retry_after_ms=30000; done
on patient
chat
expect "I39: a wait past the deadline is not begun" "$code $status" "0 429"
no_later_than "I39" "$ended_ms" 500
expect "I39: the upstream's wait is told" "$(header retry-after)" '(29|30)'
contains "I39: whose words" "$(body)" '"code":"rate_limit_exceeded"'
expect_requests_of "I39" "throttled1 throttled2" "1 1"
# DashScope's insufficient_quota is a matter of moments (and no unit of the budget)
on single
all_sources_well
source_is burst tag=burst,times=2,error=compatible_quota
chat
served_by "H2: DashScope's insufficient_quota" burst
expect "H2: DashScope's insufficient_quota" "$(attempts "n, status, coalesce(error, '')")" \
    '1\|429\|insufficient_quota 2\|429\|insufficient_quota 3\|200\|'
on azure
all_sources_well
source_is azure error=azure_requests
source_is south tag=south,times=1,status=429,retry_after_ms=300
chat
served_by "Azure's 429, then the other's" south
no_sooner_than "its wait is kept" "$ended_ms" 300

# ---- H2: money and keys ----
on money
all_sources_well
source_is poor error=openai_insufficient_quota
for _ in 1 2 3; do
    chat
    served_by "money: another account" rich
done
expect_requests_of "money: asked once" "poor rich" "1 3"
booked 1 >/dev/null
expect "money: an event" "$(event_count source_out poor)" 1
contains "money: penstockctl tells" "$(ctl sources)" '^ *poor .*insufficient_quota'
ctl undrain poor >/dev/null || fail "undrain"
source_is poor ''
chat
served_by "money: back by order" poor
on keys
source_is credential1 error=openai_key
chat
served_by "a bad key: the other source" credential2
source_is credential2 error=openai_key
ctl undrain credential1 >/dev/null
chat
expect "our own key is nobody's business" "$code $status" "0 502"
contains "our own key is nobody's business" "$(body)" '"code":"penstock_upstream_credentials"'

contains "the source's own key is sent" "$(last_of_source credential2)" '"authorization":"Bearer key-of-credential2"'
on own
source_is callers error=openai_key
chat '' -H 'Authorization: Bearer callers-key'
expect "the caller's key is the caller's business" "$code $status" "0 401"
contains "the caller's key is the caller's business" "$(last_of_source callers)" '"authorization":"Bearer callers-key"'
source_is callers error=openai_insufficient_quota
chat '' -H 'Authorization: Bearer callers-key'
expect "so is the caller's money" "$code $status" "0 429"
expect "money does not come back by itself" "$(header x-should-retry) $(header retry-after)" "false "
all_sources_well
chat '' -H 'Authorization: Bearer callers-key'
served_by "the source is as good as before" callers
for wait in 3600 3599; do
    on alone
    source_is daily error=openai_requests,retry_after=$wait,retry_after_ms=${wait}000
    chat '' -H 'Authorization: Bearer callers-key'
    expect "a long wait is told as it is" "$code $status $(header retry-after) $(header x-should-retry)" "0 429 $wait false"
    [ $wait = 3599 ] || expect "the caller's day" "$(attempts "n, limit_kind")" '1\|day'
    on daily
    chat '' -H 'Authorization: Bearer callers-key'
    served_by "another account serves who must wait for long" south
done

# ---- H3: unknown outcome ----
for keys in close=read reset=head close=midhead; do
    on pair
    all_sources_well
    source_is north $keys
    chat
    expect_refusal "unknown: $keys" 502 penstock_upstream_no_answer
    expect_requests_of "unknown: $keys" "north south" "1 0"
    on again
    chat
    served_by "unknown, with retry_unknown_outcome: $keys" south
    expect_requests_of "unknown, with retry_unknown_outcome: $keys" "north south" "2 1"
    number=$((number + 1)) model=gpt-image-call-$number
    call -p /again/v1/images/generations -H "$json" -d "{\"model\":\"$model\",\"prompt\":\"x\"}"
    expect_refusal "unknown: never for images: $keys" 502 penstock_upstream_no_answer
    expect_requests_of "unknown: never for images: $keys" "north south" "3 1"
done
until_true "slots are back" slots_are_back
# an image call that was surely not made goes elsewhere
all_sources_well
source_is north status=500
call -p /pair/v1/images/generations -H "$json" -d "$image"
expect "H3: images" "$code $status $(requests_of north south)" "0 200 1 1"

# ---- H5: the watchdog of the first content ----
while read -r keys; do
    on watch
    all_sources_well
    source_is watched "$keys"
    chat "$stream"
    expect "H5: $keys: end" "$code" 0
    expect "H5: $keys" "$status" 504
    no_sooner_than "H5: $keys" "$ended_ms" 950
    no_later_than "H5: $keys" "$ended_ms" 1200
    expect "H5: $keys: call" "$(booked "outcome, error_code")" 'upstream_failed\|penstock_[a-z_]*timeout'
    expect "H5: $keys: attempt" "$(attempts "n, source, error")" '1\|watched\|ttft_timeout'
    on watchagain
    chat "$stream"
    served_by "H5: $keys: again" south
    no_sooner_than "H5: $keys: again" "$ended_ms" 950
    no_later_than "H5: $keys: again" "$ended_ms" 1400
done <<'END'
delay_ms=8000
prelude_ms=8000
first_ms=8000
comments=200,chunk_ms=100
END
on watch
all_sources_well
source_is watched chunk_ms=700,events=4
chat "$stream"
served_by "I15: a stream that has begun is left alone" watched
no_sooner_than "I15" "$ended_ms" 2000
all_sources_well
source_is watched delay_ms=1500
chat
served_by "H5: documents have no first content" watched

# ---- B6: deadlines ----
ends_at() { # ends_at WHAT MS: in one of three tries not later than 100 ms after its deadline, and never before it
    local tries
    for tries in 1 2 3; do
        chat "${@:3}"
        no_sooner_than "$1" "$ended_ms" "$(($2 - 30))"
        [ "$ended_ms" -gt $(($2 + 100 * factor)) ] || return 0
    done
    fail "B6: $1: ended after $ended_ms ms, its deadline was $2 (in $tries tries)"
}
while read -r scope ms keys; do
    on "$scope"
    all_sources_well
    for name in north south; do source_is $name "$keys"; done
    ends_at "$scope, $keys" "$ms" '' -H "X-Penstock-Deadline: $((ms / 1000))"
    expect_refusal "B6: $scope, $keys" 504 penstock_call_deadline
    expect "B6: $scope, $keys: call" "$(booked "outcome, error_code, status")" 'upstream_failed\|penstock_call_deadline\|504'
    contains "B6: $scope, $keys: attempt" "$(attempts "coalesce(error, '')")" '(^| )deadline$'
    ends_at "$scope, $keys, stream" "$ms" "$stream" -H "X-Penstock-Deadline: $((ms / 1000))"
    contains "B6: $scope, $keys, stream" "$(body)" '"code":"penstock_call_deadline"'
done <<'END'
hurried 1000 delay_ms=9000
hurried 1000 stall=head
again 2000 delay_ms=9000
pair 1000 delay_ms=9000
END
for bad in soon 0 -1 86401; do
    chat '' -H "X-Penstock-Deadline: $bad"
    expect_refusal "a deadline of $bad" 400 penstock_bad_deadline
    expect "a deadline of $bad: call" "$(booked "outcome, error_code, status, attempts")" 'refused\|penstock_bad_deadline\|400\|0'
done
contains "a bad deadline: what is allowed" "$(body)" '"message":"[^"]*X-Penstock-Deadline[^"]*86400[^"]*ms, s, m, h, d'
on hurried
all_sources_well
source_is north chunk_ms=300,events=30
ends_at "in the middle of a stream" 1000 "$stream"
expect "B6: in the middle of a stream" "$code $status" "0 200"
contains "B6: in the middle of a stream" "$(tail -n 3 "$work/body")" '"code":"penstock_call_deadline"'
expect "B6: in the middle of a stream: not a clean end" "$(grep -c 'DONE' "$work/body")" 0
all_sources_well
for name in north south; do source_is $name status=500,delay_ms=400; done
chat
no_later_than "B6: retries end with the deadline" "$ended_ms" 1100
[ $(($(of_source north requests) + $(of_source south requests))) -le 3 ] || fail "B6: more attempts than the budget"
all_sources_well
for name in north south; do source_is $name delay_ms=9000; done
load deadlines -p /hurried$chat_path -d '{"model":"m","messages":[]}' -c 20 -n 60
load_ends deadlines
expect "B6: many at once" "$(report deadlines 'status 504')" 60
no_later_than "B6: many at once" "$(report deadlines slowest_ms)" 1100

# ---- B5: a stream that breaks after its first content never ends well ----
while read -r path members; do
    for keys in close=1500 reset=1500 stall=1500 garble=1500; do
        all_sources_well
        source_is north "events=40,size=100,chunk_ms=10,$keys"
        call -p "/again$path" -H "$json" -d "{\"model\":\"m\",\"stream\":true,$members}"
        expect "B5: $keys $path" "$code $status" "0 200"
        expect "B5: $keys $path: one error event" "$(grep -c '^event: error$' "$work/body")" 1
        contains "B5: $keys $path: it is the last" "$(tail -n 3 "$work/body" | tr '\n' ' ')" \
            '^event: error data: \{.*"code":"penstock_upstream_(cut|stalled|bad_answer)".*\}  ?$'
        expect "B5: $keys $path: no clean end" "$(grep -c 'DONE\|response.completed\|message_stop' "$work/body")" 0
        expect_requests_of "H4: $keys $path: nothing is tried after the first content" "north south" "1 0"
    done
done <<'END'
/v1/chat/completions "messages":[]
/v1/responses "input":"x"
/v1/messages "messages":[]
END
all_sources_well
source_is north events=6,bad_event=3
on pair
chat "$stream"
expect "I1: one broken event among good ones" "$code $status $(grep -c DONE "$work/body")" "0 200 1"

# ---- H20: fallback, aliases ----
on elsewhere
all_sources_well
long=error=openai_requests,retry_after=90,retry_after_ms=90000 # too long to wait for
source_is other tag=first,times=1,$long
odd='{ "messages":[], "x":"model", "model" : "asked", "y":{"model":"asked"} }'
call -p /elsewhere$chat_path -H "$json" -d "$odd"
expect "H20: another model" "$code $status $(header x-penstock-model)" "0 200 mini"
contains "H20: one string is changed" "$(last_of_source other)" "\"sha256\":\"$(printf '%s' "${odd/\"asked\"/\"mini\"}" | sha256sum | cut -d' ' -f1)\""
head=$(grep -i '^x-request-id' <<<"$head")
expect "H20: in the ledger" "$(row "model_asked, model_served, fallback, outcome")" 'asked\|mini\|1\|ok'
all_sources_well
source_is other $long
chat
served_by "H20: another scope" north
expect "H20: the model as it was asked for" "$(header x-penstock-model)" '()|call-[0-9]+'
contains "H20: the model as it was asked for" "$(last_of_source north)" "\"model\":\"$model\""
source_is north $long
source_is south $long
chat
expect "H20: all are throttled: the last refusal is passed on" "$code $status" "0 429"
contains "H20: whose words" "$(body)" '"code":"rate_limit_exceeded"'
for name in north south; do ctl undrain $name >/dev/null || fail undrain; done
for keys in status=500 close=read error=openai_insufficient_quota error=openai_context; do
    all_sources_well
    ctl undrain other >/dev/null
    source_is other $keys
    chat
    [ "$status" -ge 400 ] || fail "H20: no fallback for $keys: $status"
    expect_requests_of "H20: no fallback for $keys" "north south" "0 0"
done
on pair
all_sources_well
source_is north status=500
call -p /pair$chat_path -H "$json" -d '{"model":"alias","messages":[]}'
expect "aliases" "$code $status" "0 200"
contains "aliases: the first source's" "$(last_of_source north)" '"model":"north-model"'
contains "aliases: the second source's" "$(last_of_source south)" '"model":"south-model"'

# ---- penstockctl drain, undrain ----
all_sources_well
ctl drain north >/dev/null || fail "drain"
for _ in 1 2 3; do chat && served_by "drained" south; done
expect_requests_of "drained" "north south" "0 3"
contains "drained: penstockctl tells" "$(ctl sources)" '^ *north .*drained'
ctl undrain north >/dev/null || fail "undrain"
chat
served_by "undrained" north
is_told() { [ "$(event_count source_drained north)" = 1 ] && [ "$(event_count source_undrained north)" -ge 1 ]; }
until_true "drained: events" is_told
ctl drain nobody >"$work/nobody" 2>&1 && fail "an unknown source is drained"

# ---- H7: one breaker for all workers ----
all_sources_well
source_is broken status=500
load opening -p /breaker$chat_path -d '{"model":"m","messages":[]}' -c 8 -R 100 -n 150
load_ends opening
nothing_lost opening
asked=$(last_of_source broken 200 | grep -o '"begun_ns":[0-9]*' | cut -d: -f2 | sort -n)
[ "$(wc -l <<<"$asked")" -ge 3 ] || fail "B4: the broken source was asked $(wc -l <<<"$asked") times"
late=$(awk 'NR == 3 { third = $1 } { last = $1 } END { printf "%d", (last - third) / 1e6 }' <<<"$asked")
no_later_than "B4: the last call after the third failure" "$late" 1000
# Half-open: whoever asks, there is one at a time
source_is broken delay_ms=800,status=500
curl -s -X POST "$(source_url broken)/stats/reset" >/dev/null
half_open() { [ "$(of_source broken requests)" -ge 1 ]; }
load half -p /breaker$chat_path -d '{"model":"m","messages":[]}' -c 32 -R 200 -S 6
until_true "the breaker is half open" half_open
load_ends half
nothing_lost half
expect "I27: probes at once" "$(of_source broken calls_open_max)" 1
expect "H7: the second cool-down is longer" "$(of_source broken requests)" "[12]"
source_is broken ''
closed() {
    ask -p /breaker$chat_path -H "$json" -d '{"model":"m","messages":[]}' | grep -q '"broken '
}
until_true "H7: a good probe closes it" closed
is_an_event() { [ "$(event_count "$1" broken)" -ge 1 ]; }
for event in source_open source_half_open source_closed; do until_true "H7: $event" is_an_event $event; done

# ---- TLS to a source, by a certificate of an authority of our own ----
if [ -n "$tls" ]; then
    on secure
    all_sources_well
    chat
    served_by "over TLS, where it is trusted" veiled
    expect "not sent where it is not" "$(attempts "n, source, coalesce(status, 0)")" '1\|stranger\|0 2\|veiled\|200'
    chat "$stream"
    served_by "over TLS: a stream" veiled
    kill -KILL "$tls_pid"
    wait "$tls_pid" 2>/dev/null
    chat
    served_by "TLS gone: without it" south
else
    echo "no TLS to a source: caddy or openssl is missing"
fi

# ---- B4: a source dies under load and comes back ----
dies() { # dies SCOPE: its load goes to $work/SCOPE
    all_sources_well
    for name in north south; do
        ctl undrain $name >/dev/null
        source_is $name delay_ms=60,skip_sha
    done
    load "$1" -p "/$1$chat_path" -d '{"model":"m","messages":[]}' -c 128 -R 200 -S 6
    both_work() { [ "$(of_source north requests)" -ge 100 ] && [ "$(of_source south requests)" -ge 100 ]; }
    until_true "both sources work" both_work
    kill_source north
    north_is_known_dead() { ctl sources | grep -q '^ *north .*open'; }
    until_true "B4: the breaker of the dead source is open" north_is_known_dead
    run_source north
    source_is north delay_ms=60,skip_sha
    load_ends "$1"
    [ "$(of_source north requests)" -ge 20 ] || fail "B4: $1: the source that came back got $(of_source north requests) calls"
}
dies strong
nothing_lost strong
dies strict
lost=$(other_than strict 'status 200')
expect "B4: what is lost was sent to the dying source, and says so" "$(report strict 'code penstock_upstream_no_answer')" "$lost"
expect "B4: with its own status" "$(report strict 'status 502')" "$lost"
((lost >= 1 && lost <= 40)) || fail "B4: $lost calls lost"
expect "B4: whole answers" "$(report strict ended_with_error)" "$lost"

until_true "nothing of any source is taken" sources_are_idle
until_true "no slot is taken" nothing_in_use
