#!/usr/bin/env bash
# timeout: 60
# Streams arrive event by event; clients that wait get signs of life, and what follows fits them.
# G3 G6 G14 G15 N3 N4 T25 T40 T41 T42 T45 T48 T60 T62 T63
# shellcheck source=tests/processes/lib_faults.sh
. "$(dirname "$0")/lib_faults.sh"
begin
start_upstream -d seed=7,size=400
penstock_options='workers = 2'
source_options='timeout_s = 3
stream_idle_timeout_s = 1'
configure <<'EOF'
enabled = true
max_concurrent_requests = 1
overflow_mode = wait
wait_timeout_seconds = 2
queue_stream_headers_after_seconds = 200ms
queue_heartbeat_seconds = 1
nonstream_heartbeat_seconds = 200ms
image_first_byte_timeout_seconds = 3
EOF
start_penstock
images=/v1/images/generations chat=/v1/chat/completions responses=/v1/responses

direct() { curl -s -H "$json" -H "X-Mock: $1" -d "$document" "http://127.0.0.1:$upstream_port$2" -o "$work/direct"; }
# How often nothing came for at least so many milliseconds, before the end.
gaps() { awk -v least="$1" 'NR > 1 && $1 - last >= least { n++ } { last = $1 } END { print n + 0 }' "$work/times"; }
field() { sqlite3 :memory: "select json_extract(cast(readfile('$1') as text), '\$.$2')"; } # field FILE PATH
number=0
new_document() { # new_document [more members]: asked for under a model name of its own
    number=$((number + 1))
    document="{\"model\":\"gpt-image-$number\",\"prompt\":\"x\",\"messages\":[]${1:-}}"
}
is_booked() { [ -n "$(ledger "select 1 from calls where model_asked = 'gpt-image-$number'" 2>/dev/null)" ]; }
expect_booked() { # expect_booked WHAT outcome|error_code|status|upstream_status|images
    until_true "$1: is in the ledger" is_booked
    expect "$1: ledger" "$(ledger "select outcome, coalesce(error_code, ''), status, coalesce(upstream_status, 0), images from calls where model_asked = 'gpt-image-$number'")" \
        "${2//|/\\|}"
    until_true "$1: slots are back" slots_are_back
}

# ---- G15: each event when it comes ----
for path in $chat $responses /v1/messages $images; do
    mock=chunk_ms=100,events=5,partials=3
    new_document ',"stream":true'
    call -t -p "$path" -H "$json" -H "X-Mock: $mock" -d "$document"
    expect "G15: $path" "$code $status" "0 200"
    direct "$mock" "$path"
    expect "T42: $path: bytes" "$(sum "$work/body")" "$(sum "$work/direct")"
    events=$(awk 'BEGIN { RS = "" } END { print NR }' "$work/body")
    # 100 ms apart at the upstream: some may meet on a busy machine, but not half of them
    [ "$(gaps 50)" -ge $((events / 2)) ] || fail "G15: $path: $events events in $(gaps 50) flushes"
done
mock=chunk_ms=300,partials=3,size=8m
new_document ',"stream":true'
call -t -p $images -H "$json" -H "X-Mock: $mock" -d "$document"
direct "$mock" $images
expect "T25: 8 MB previews: bytes" "$code $(sum "$work/body")" "0 $(sum "$work/direct")"
[ "$(gaps 100)" -ge 2 ] || fail "T40: 8 MB previews come together: $(gaps 100) gaps"
expect_booked "T41: previews are no pictures" 'ok||200|200|1'
# first things first: the head is there while the upstream still thinks about the first event
new_document ',"stream":true'
call -t -p $chat -H "$json" -H 'X-Mock: first_ms=700' -d "$document"
[ "$(gaps 350)" -ge 1 ] || fail "the head of a stream waits for its first event"
# comments alone keep nobody for ever
new_document ',"stream":true'
call -t -p $chat -H "$json" -H 'X-Mock: comments=1000,chunk_ms=100' -d "$document"
contains "T48: comments only" "$(body | tail -n 3)" '"code":"penstock_upstream_stalled"'
last_ms=$(tail -n 1 "$work/times" | cut -d' ' -f1)
[ "$last_ms" -ge 2500 ] || fail "T48: ended after $last_ms ms"

# ---- a waiting client of a stream ----
holder=0
hold() { # the slot is taken for so many milliseconds
    draw -H "X-Mock: delay_ms=$1" >/dev/null &
    holder=$!
    until_true "the slot is taken" slot_is_taken
}
slot_is_taken() { [ "$(status_number used)" = 1 ]; }
# wait_for MOCK PATH [hold ms] [members] [options]: the call waits, gets an early head and a comment or two, then its answer in
# $work/rest
wait_for() {
    new_document "${4:-,\"stream\":true}"
    hold "${3:-1200}" # long enough on a busy machine: the early head comes after 200 ms
    call -t -p "$2" -H "$json" -H "X-Mock: $1" -d "$document" "${@:5}"
    wait $holder
    expect "early head of $1" "$status" 200
    contains "early head of $1" "$head" '^Content-Type: text/event-stream$'
    expect "early head of $1: length" "$(grep -c -i '^content-length' <<<"$head")" 0
    expect "first line" "$(head -n 1 "$work/body")" ': waiting'
    sed '/^: waiting$/,/^$/d' "$work/body" >"$work/rest"
}
data() { sed -n 's/^data: //p' "$work/rest" | tail -n 1 >"$work/data"; }

wait_for chunk_ms=20,partials=2 $images 1800
expect "T60: a stream after the wait" "$code" 0
comments=$(grep -c '^: waiting$' "$work/body")
[ "$comments" -ge 2 ] || fail "T60: $comments comments in 1.8 s"
first_ms=$(head -n 1 "$work/times" | cut -d' ' -f1)
[ "$first_ms" -lt 1000 ] || fail "T60: the early head came after $first_ms ms"
direct partials=2 $images
expect "after the wait: bytes" "$(sum "$work/rest")" "$(sum "$work/direct")"
expect_booked "after the wait" 'ok||200|200|1'

for path in $images $responses $chat; do
    wait_for '' "$path" 1500 ',"stream":true,"tools":[{"type":"image_generation"}],"modalities":["image"]' \
        -H 'X-Stainless-Timeout: 1'
    data
    expect "G6: refused after the head: $path" "$code $(grep -c . "$work/rest") $(sed -n 1p "$work/rest")" "0 2 event: error"
    expect "G6: its code: $path" "$(field "$work/data" error.code) $(field "$work/data" error.type)" \
        'penstock_image_queue_timeout rate_limit_error'
    expect_booked "refused after the head: $path" 'refused|penstock_image_queue_timeout|429|0|0'
done
expect "its type, where readers look for it" "$(field "$work/data" type)" ''

wait_for stream=0 $images
direct stream=0 $images
data
expect "T45: a document for a stream" "$code $(grep -c . "$work/rest")" "0 1"
expect "T45: one data event" "$(sum "$work/data")" "$( (cat "$work/direct"; echo) | sha256sum | cut -d' ' -f1)"
expect_booked "a document for a stream" 'ok||200|200|1'

wait_for status=400,stream=0 $images
data
expect "an upstream's error" "$code $(sed -n 1p "$work/rest") $(field "$work/data" error.code)" '0 event: error invalid_value'
expect_booked "an upstream's error" 'upstream_error||400|400|0'

while read -r mock wanted status_wanted upstream_status; do
    wait_for "$mock" $images
    data
    expect "$mock in a stream" "$code $(grep -c '^event: error$' "$work/rest") $(field "$work/data" error.code)" "0 1 $wanted"
    expect_booked "$mock in a stream" "upstream_failed|$wanted|$status_wanted|$upstream_status|0"
done <<'EOF'
status=502,dialect=html,stream=0 penstock_upstream_bad_answer 502 502
gzip penstock_upstream_bad_answer 502 200
stream=0,gzip penstock_upstream_bad_answer 502 200
status=500,dialect=empty,stream=0 penstock_upstream_bad_answer 502 500
stream=0,close=300 penstock_upstream_cut 502 200
close=300 penstock_upstream_cut 502 200
reset=head penstock_upstream_no_answer 502 0
EOF

# ---- blanks before a document ----
# expect_document WHAT: early head, blanks, one JSON document
expect_document() {
    expect "$1: end" "$code $status" "0 200"
    contains "$1: type" "$head" '^Content-Type: application/json$'
    contains "$1: blanks" "$(head -c 2 "$work/body")x" '^ +.?x'
    is_json "$work/body" || fail "$1: not one JSON document: $(body)"
}
new_document
call -p $images -H "$json" -H 'X-Mock: delay_ms=900' -d "$document"
expect_document "T63: slow document"
contains "T63: a blank each 200 ms" "$(head -c 3 "$work/body")" '^   $'
direct '' $images
expect "T63: bytes behind the blanks" "$(sed 's/^ *//' "$work/body" | sha256sum)" "$(sed 's/^ *//' "$work/direct" | sha256sum)"
expect_booked "slow document" 'ok||200|200|1'
new_document
call -p $images -H "$json" -H 'X-Mock: delay_ms=300,status=500' -d "$document"
expect_document "T62: an upstream's error"
expect "T62: its words" "$(field "$work/body" error.code)" server_error
expect_booked "T62: the logical status" 'upstream_error||500|500|0'
while read -r mock wanted status_wanted upstream_status pictures; do
    new_document
    call -p $images -H "$json" -H "X-Mock: delay_ms=300,$mock" -d "$document"
    expect_document "$mock behind blanks"
    expect "$mock behind blanks" "$(field "$work/body" error.code)" "$wanted"
    expect_booked "$mock behind blanks" "upstream_failed|$wanted|$status_wanted|$upstream_status|$pictures"
done <<'EOF'
reset=head penstock_upstream_no_answer 502 0 0
stall=head penstock_upstream_timeout 504 0 0
garbage penstock_upstream_bad_answer 502 0 0
stream=1 penstock_upstream_bad_answer 502 200 1
gzip penstock_upstream_bad_answer 502 200 0
status=502,dialect=html penstock_upstream_bad_answer 502 502 0
status=500,dialect=empty penstock_upstream_bad_answer 502 500 0
EOF
new_document
call -p $images -H "$json" -H 'X-Mock: delay_ms=300,close=300' -d "$document"
expect "N4: half a document behind blanks is cut off" "$code" 3
expect_booked "half a document" 'upstream_failed|penstock_upstream_cut|502|200|0'
hold 1500
new_document
call -p $images -H "$json" -H 'X-Stainless-Timeout: 1' -d "$document"
expect_document "refused behind blanks"
expect "refused behind blanks" "$(field "$work/body" error.code)" penstock_image_queue_timeout
wait $holder
expect_booked "refused behind blanks" 'refused|penstock_image_queue_timeout|429|0|0'
all_well "the end"
