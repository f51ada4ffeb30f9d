#!/usr/bin/env bash
# timeout: 60
# Upstreams that fail in every way: what the client reads, what the ledger keeps, what is given back.
# H4 H6 M12 N2 N3 N4 G9 T25 T28 T45 T70 T71 T90 T92
# shellcheck source=tests/processes/lib_faults.sh
. "$(dirname "$0")/lib_faults.sh"
begin
start_upstream -d seed=7,size=400
penstock_options='workers = 1'
source_options='timeout_s = 3
connect_timeout_s = 1
stream_idle_timeout_s = 1'
configure <<'EOF'
enabled = true
max_concurrent_requests = 2
overflow_mode = wait
image_first_byte_timeout_seconds = 1
EOF
start_penstock
images=/v1/images/generations chat=/v1/chat/completions responses=/v1/responses
number=0

# ask_for MOCK PATH [stream]: one call, of a model name of its own, by which the ledger is asked
ask_for() {
    local stream=''
    number=$((number + 1))
    model=fault-$number
    [ "${3:-}" = stream ] && stream=',"stream":true'
    document="{\"model\":\"$model\",\"prompt\":\"x\",\"messages\":[]$stream}"
    call -p "$2" -H "$json" -H "X-Mock: $1" -d "$document"
}
is_booked() { [ -n "$(ledger "select 1 from calls where model_asked = '$model'" 2>/dev/null)" ]; }
# expect_booked WHAT outcome|error_code|status|upstream_status
expect_booked() {
    until_true "$1: is in the ledger" is_booked
    expect "$1: ledger" "$(ledger "select outcome, coalesce(error_code, ''), status, coalesce(upstream_status, 0) from calls where model_asked = '$model'")" \
        "${2//|/\\|}"
    until_true "$1: slots are back" slots_are_back
}
# The same asked of the upstream itself: the body goes to $work/direct
direct() { curl -s -H "$json" -H "X-Mock: $1" -d "$document" "http://127.0.0.1:$upstream_port$2" -o "$work/direct" "${@:3}"; }
expect_same_bytes() { expect "$1: bytes" "$(sum "$work/body")" "$(sum "$work/direct")"; }

# expect_broken_stream WHAT CODE: one error event of ours at the very end, whatever came before
expect_broken_stream() {
    expect "$1: end" "$code $status" "0 200"
    contains "$1: type" "$head" '^Content-Type: text/event-stream'
    expect "$1: error events" "$(grep -c '^event: error$' "$work/body")" 1
    awk 'BEGIN { RS = "" } { last = $0 } END { print last }' "$work/body" >"$work/last"
    expect "$1: lines of the last event" "$(wc -l <"$work/last")" 2
    expect "$1: first line of the last event" "$(sed -n 1p "$work/last")" 'event: error'
    sed -n '2s/^data: //p' "$work/last" >"$work/error"
    expect "$1: error of the last event" \
        "$(sqlite3 :memory: "select json_extract(cast(readfile('$work/error') as text), '\$.error.code', '\$.error.param', '\$.error.type')")" \
        "\\[\"$2\",null,\"server_error\"\\]"
    expect "$1: no [DONE]" "$(grep -c 'DONE' "$work/body")" 0
    expect "$1: the end is a blank line" "$(tail -c 2 "$work/body" | od -An -c | tr -d ' ')" '\\n\\n'
}

# ---- no answer ----
for path in $chat $images; do
    upstream_reset
    for mock in reset=read reset=head close=read close=head close=midhead; do
        ask_for "$mock" "$path"
        expect_refusal "$mock $path" 502 penstock_upstream_no_answer
        contains "$mock: no retry" "$head" '^x-should-retry: false$'
        expect_booked "$mock $path" 'upstream_failed|penstock_upstream_no_answer|502|0'
    done
    expect_requests "M12: each arrives once, $path" 5
    for mock in garbage endless_headers; do
        ask_for "$mock" "$path"
        expect_refusal "$mock $path" 502 penstock_upstream_bad_answer
        expect_booked "$mock $path" 'upstream_failed|penstock_upstream_bad_answer|502|0'
    done
    ask_for stall=head "$path"
    expect_refusal "stall=head $path" 504 penstock_upstream_timeout
    expect_booked "stall=head $path" 'upstream_failed|penstock_upstream_timeout|504|0'
done
# M12: on a connection that was used before, too; of the next after a failure nothing is left
upstream_reset
ask_for '' $chat
expect "a connection is kept" "$code $status" "0 200"
ask_for '' $chat
expect "M12: a connection is used again (the other one asks)" "$(upstream_stat connections)" 2
ask_for close=read $chat
expect_refusal "M12: close=read, used again" 502 penstock_upstream_no_answer
ask_for reset=read $chat stream
expect_refusal "M12: reset=read, stream" 502 penstock_upstream_no_answer
expect_requests "M12: used again" 4
# what only asks is asked once more, and no more than that
upstream_reset
call -p /v1/models -H 'X-Mock: tag=get,times=1,close=read'
expect "a GET is asked again" "$code $status" "0 200"
expect_requests "a GET is asked again" 2
call -p /v1/models -H 'X-Mock: close=read'
expect_refusal "a GET is asked twice at most" 502 penstock_upstream_no_answer
expect_requests "a GET is asked twice at most" 4
# a request larger than the sockets hold, read whole and not answered, or answered before it is read
upstream_reset
head -c 3000000 /dev/zero | tr '\0' x >"$work/large"
call -p $chat -H "$json" -H 'X-Mock: close=read' -f "$work/large"
expect_refusal "M12: 3 MB" 502 penstock_upstream_no_answer
call -p $chat -H "$json" -H 'X-Mock: early,status=413' -f "$work/large"
expect "answered before it was read" "$status" 413
expect_requests "M12: 3 MB" 2

# ---- a document that breaks off: the connection ends without END_REQUEST ----
for path in $chat $images; do
    for mock in reset=1 reset=100 close=1 close=300 close=300,chunked reset=200,chunked,chunk=50 stall=200; do
        wanted=penstock_upstream_cut status_wanted=502
        [[ $mock == stall* ]] && wanted=penstock_upstream_stalled status_wanted=504
        ask_for "$mock" "$path"
        expect "N4: $mock $path: cut off" "$code" 3
        expect "$mock $path: no event in a document" "$(grep -c 'event:' "$work/body")" 0
        expect_booked "$mock $path" "upstream_failed|$wanted|$status_wanted|200"
    done
done
ask_for close=300,no_length $chat
expect "N4: a document without length, cut" "$code" 3
expect_booked "a document without length" 'upstream_failed|penstock_upstream_cut|502|200'

# ---- a stream that breaks off ----
for path in $chat $responses /v1/messages $images; do
    for mock in reset=1 close=700 reset=330 close=450,no_length stall=150; do
        wanted=penstock_upstream_cut status_wanted=502
        [[ $mock == stall* ]] && wanted=penstock_upstream_stalled status_wanted=504
        ask_for "$mock" "$path" stream
        expect_broken_stream "N4: $mock $path" "$wanted"
        expect_booked "$mock $path" "upstream_failed|$wanted|$status_wanted|200"
    done
done
# cut exactly between two events
ask_for 'done=0,usage=0,events=3' $chat stream
bytes=$(awk 'BEGIN { RS = "" } NR <= 2 { n += length($0) + 2 } END { print n }' "$work/body")
ask_for "close=$bytes" $chat stream
expect_broken_stream "between events" penstock_upstream_cut
expect "between events: what came whole stays so" "$(awk 'BEGIN { RS = "" } END { print NR }' "$work/body")" 3
# one of two pictures is not all
ask_for n=2 $images stream
bytes=$(awk 'BEGIN { RS = "" } NR <= 1 { n += length($0) + 2 } END { print n }' "$work/body")
ask_for "n=2,close=$bytes" $images stream
expect_broken_stream "N4: one of two pictures" penstock_upstream_cut
# after its last event a stream is whole, however its connection ends: an error behind it would be read by nobody
for path in $chat $responses /v1/messages; do
    ask_for '' "$path" stream
    bytes=$(wc -c <"$work/body")
    for mock in close reset stall; do
        ask_for "$mock=$bytes" "$path" stream
        expect "ended, then $mock: $path" "$code $(wc -c <"$work/body")" "0 $bytes"
        expect_booked "ended, then $mock: $path" 'ok||200|200'
    done
done
# the upstream's own error event is the only one
ask_for error_event=2 $chat stream
expect "error_event" "$code $(grep -c '"error"' "$work/body")" "0 1"
expect_booked "error_event" 'ok||200|200'

# ---- answers that are odd but whole pass untouched ----
while read -r mock path stream; do
    ask_for "$mock" "$path" "$stream"
    expect "$mock $path" "$code" 0
    direct "$mock" "$path"
    expect_same_bytes "$mock $path $stream"
    expect_booked "$mock $path" 'ok||200|200'
done <<EOF
bad_event=2 $chat stream
done=0 $chat stream
no_length $chat
no_length $chat stream
no_length $images
no_length $responses stream
no_length $images stream
chunked $chat
chunked,chunk=7 $images
chunk=3 $chat stream
close_after $chat
interim=5 $chat
interim=1 $images stream
head_bytes=9000 $chat
gzip $chat
gzip $images
gzip $chat stream
gzip,chunked $chat
ctype=application/json,stream=1 $chat
ctype=text/event-stream,stream=0 $chat
ctype=text/html $chat
stream=0 $images stream
stream=1 $images
odd_headers $chat
size=200000 $chat
size=3m,n=3 $images
comments=3 $chat stream
EOF
ask_for gzip $chat
contains "T28: the coding is named" "$head" '^Content-Encoding: gzip$'
contains "T28: the length is the coded one" "$head" "^Content-Length: $(wc -c <"$work/body")\$"
ask_for interim=3 $chat
expect "1xx stay here" "$(grep -c -i '^link:\|103' <<<"$head")" 0
ask_for odd_headers $chat
contains "unknown headers pass" "$head" '^X-Unknown-Header: kept$'
expect "the upstream's own site stays there" "$(grep -c -i '^set-cookie\|^server\|^alt-svc\|^keep-alive\|^strict-tr\|^transfer-enc\|^connection' <<<"$head")" 0

# ---- refusals pass as they are ----
while read -r mock; do
    ask_for "$mock" $chat
    direct "$mock" $chat -D "$work/direct.head"
    expect_same_bytes "T92: $mock"
    refusal=$(sed -n 's/.*status=\([0-9]*\).*/\1/p' <<<"$mock")
    expect "$mock" "$code $status" "0 $refusal"
    expect "$mock: its headers" "$(grep -i '^retry-\|^x-ratelimit\|^content-type\|^content-length' <<<"$head" | tr '[:upper:]' '[:lower:]' | sort)" \
        "$(tr -d '\r' <"$work/direct.head" | grep -i '^retry-\|^x-ratelimit\|^content-type\|^content-length' | tr '[:upper:]' '[:lower:]' | sort)"
    expect_booked "$mock" "upstream_error||$refusal|$refusal"
done <<'EOF'
status=429,retry_after=7,retry_after_ms=7100,limit_requests=60,remaining_requests=0,reset_requests=6m0s,limit_tokens=9,remaining_tokens=0,reset_tokens=1s
status=429,dialect=dashscope
status=429,dialect=compatible,code=insufficient_quota
status=429,dialect=gemini,retry_after=37
status=429,dialect=azure,retry_after=3600
status=400
status=401
status=402
status=404,dialect=html
status=409
status=500
status=500,dialect=empty
status=503,dialect=plain,chunked
status=529,dialect=anthropic
EOF
upstream_reset
ask_for redirect $chat
expect "a redirect passes" "$code $status" "0 307"
contains "a redirect passes" "$head" '^Location: /redirected$'
expect_requests "a redirect is not followed" 1
ask_for 'status=429,retry_after=5' $images stream
expect "T45: a refusal of a stream stays a document" "$code $status" "0 429"
is_json "$work/body" || fail "a refusal of a stream is JSON"
expect_booked "refused stream" 'upstream_error||429|429'

# ---- 40 MB in one line, in constant memory ----
worker=$(workers)
peak_kb() { # the most memory since it was last asked, when we may ask for it; else what is held now
    memory_kb "$worker" VmHWM
    { echo 5 >"/proc/$worker/clear_refs"; } 2>/dev/null
}
peak_kb >/dev/null
before=$(memory_kb "$worker" VmRSS)
ask_for line=40m $chat stream
expect "T25: 40 MB line" "$code" 0
direct line=40m $chat
expect_same_bytes "T25: 40 MB line"
ask_for size=40m $images stream
expect "T25: 40 MB picture" "$code" 0
direct size=40m $images
expect_same_bytes "T25: 40 MB picture"
ask_for size=40m $images
direct size=40m $images
expect_same_bytes "T26: 40 MB document"
grown=$(($(peak_kb) - before))
expect_memory_below "T25: lines of 40 MB" "$grown" 8192

# ---- all of it at once, and a third of the clients leave ----
upstream_reset
ctl limit 8 >/dev/null
callers=()
for mock in reset=head close=100 garbage status=500 stall=head delay_ms=20 stall=100,stream=1 delay_ms=5,gzip; do
    "$client" -s "$work/penstock.sock" -p $images -H "$json" -H "X-Mock: $mock" -d "$image" -c 3 -S 3 -l 33 -m 300 >"$work/load.${#callers[@]}" &
    callers+=($!)
done
wait "${callers[@]}"
all_well "T70 T71: all faults at once"
no_open_rows() { [ "$(ledger "select count(*) from waits where state in ('waiting', 'granted')")" = 0 ]; }
until_true "T70: every wait is over" no_open_rows
[ "$(upstream_stat images_open_max)" -le 8 ] || fail "N1: $(upstream_stat images_open_max) image calls at once"

# ---- nobody there ----
kill "$upstream_pid"
wait "$upstream_pid"
for path in $chat $images; do
    ask_for '' "$path"
    expect_refusal "nobody listens $path" 502 penstock_upstream_connect
    expect "N6: clients do not learn where the upstream is" "$(grep -cw "127.0.0.1\|$upstream_port" "$work/body")" 0
    contains "the log tells" "$(tail -n 1 "$work/penstock.log")" "upstream_error="
    expect_booked "nobody listens $path" 'upstream_failed|penstock_upstream_connect|502|0'
done
start_upstream -d seed=7,size=400
all_well "the upstream is back"
expect "integrity" "$(ledger 'pragma integrity_check')" ok
