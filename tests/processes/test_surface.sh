#!/usr/bin/env bash
# timeout: 60
# What passes in both directions, with no configuration at all and with a key of the gateway's own.
# B6 N6 T21 T31, product.md "HTTP surface"
# shellcheck source=tests/processes/lib_faults.sh
. "$(dirname "$0")/lib_faults.sh"
begin
start_upstream -d seed=7,size=400
url=http://127.0.0.1:$upstream_port
field() { sqlite3 :memory: "select json_extract(cast(readfile('$1') as text), '\$.$2')"; } # field FILE PATH
# The end-to-end headers an echo shows, in one order; what each hop says of itself is left out.
headers_of() {
    sqlite3 :memory: "select lower(key) || ': ' || value from json_each(cast(readfile('$1') as text), '\$.headers')
        where lower(key) not in ('host', 'accept-encoding', 'connection', 'x-mock') order by 1"
}
direct() { curl -s "$@" -D "$work/direct.head" -o "$work/direct"; }

# ---- no file, one variable ----
default_file=/etc/penstock/penstock.conf
arguments=()
if [ -e $default_file ]; then
    : >"$work/penstock.conf"
    arguments=(-c "$work/penstock.conf")
fi
start_by_environment() {
    env "PENSTOCK_UPSTREAM=$url/" "PENSTOCK__PENSTOCK__LISTEN=unix:$work/penstock.sock" \
        "PENSTOCK__PENSTOCK__STATUS_LISTEN=unix:$work/status.sock" "PENSTOCK__PENSTOCK__STATE_DIRECTORY=$work" \
        "PENSTOCK__PENSTOCK__RUNTIME_DIRECTORY=$work" "PENSTOCK__IMAGE_CONCURRENCY__GATE=$gate" "$@" \
        "$penstockd" "${arguments[@]}" >>"$work/penstock.log" 2>&1 &
    master_pid=$!
    pids+=("$master_pid")
    until_true "penstockd answers" ctl ping
}
stop() {
    kill -TERM "$master_pid"
    wait "$master_pid"
}
start_by_environment

given=(-H 'Authorization: Bearer sk-of-the-client' -H 'OpenAI-Organization: org' -H 'Idempotency-Key: 7'
    -H 'X-Stainless-Lang: js' -H 'X-Stainless-Retry-Count: 0' -H 'OpenAI-Beta: a=b, c' -H 'traceparent: 00-1-2-03'
    -H 'X-Unknown: ä ;,="quoted"' -H 'Accept: */*' -H 'User-Agent: test/1.0' -H 'X-Request-Id: of-the-client')
form='Content-Type: multipart/form-data; boundary="b 1"'
printf -- '--b 1\r\nContent-Disposition: form-data; name="image[]"; filename="名 \\".png"\r\n\r\n\x89PNG\0\r\n--b 1\r\nContent-Disposition: form-data; name="model"\r\n\r\ngpt-image-2\r\n--b 1--\r\n' >"$work/form"
printf '{"model":"m", "messages":[],\n"unknown":{"a":[1,2.50,1e400]},"model":"caf\xc3\xa9"}' >"$work/json"
printf '\0\1\2' >"$work/binary"
: >"$work/empty"

# B6: what the upstream reads is what a direct call gives it
n=0
while read -r method path type file; do
    n=$((n + 1))
    options=() curl_options=()
    [ "$type" != - ] && options=(-H "Content-Type: ${type//_/ }")
    [ "$file" != - ] && curl_options=(--data-binary "@$work/$file") && options+=(-f "$work/$file")
    [ "$file" != - ] && [ "$type" = - ] && curl_options+=(-H 'Content-Type:')
    [ "$type" != - ] && curl_options+=(-H "Content-Type: ${type//_/ }")
    direct --path-as-is -X "$method" "${given[@]}" "${curl_options[@]}" -H 'X-Mock: echo' "$url$path"
    [ "$file" = - ] && options+=(-L '')
    call -X "$method" -p "$path" "${given[@]}" "${options[@]}" -H 'X-Mock: echo'
    what="B6 $n: $method $path"
    expect "$what" "$code $status" "0 200"
    for name in method path query body_bytes sha256 chunked; do
        expect "$what: $name" "$(field "$work/body" $name | sed 's/[^A-Za-z0-9]/_/g')" "$(field "$work/direct" $name | sed 's/[^A-Za-z0-9]/_/g')"
    done
    [ "$(headers_of "$work/body")" = "$(headers_of "$work/direct")" ] ||
        fail "$what: headers: $(diff <(headers_of "$work/direct") <(headers_of "$work/body"))"
done <<'EOF'
POST /v1/chat/completions application/json json
POST /v1/chat/completions?a=b&c=%2F%20&d - json
POST /v1/images/edits multipart/form-data;_boundary="b_1" form
POST /v1/responses text/plain json
POST /v1/unknown/path application/octet-stream binary
POST /v1/responses/x/cancel - empty
GET /v1/models - -
GET /v1/responses/x?stream=true&starting_after=5 - -
DELETE /v1/responses/x - -
PUT /v1/files/x application/json json
PATCH /v1/files/x application/json json
OPTIONS /v1/models - -
GET /v1/%7Euser;a=b/:x@!$&'()*+,=~ - -
EOF
# B6: what the client reads is what a direct call gives it
while read -r mock path members; do
    body="{\"model\":\"m\",\"messages\":[]$members}"
    direct -H "$json" -H "X-Mock: $mock" -d "$body" "$url$path"
    call -p "$path" -H "$json" -H "X-Mock: $mock" -d "$body"
    expect "B6 $mock $path: status" "$code $status" "0 $(sed -n '1s/^[^ ]* \([0-9]*\).*/\1/p' "$work/direct.head")"
    expect "B6 $mock $path: bytes" "$(sum "$work/body")" "$(sum "$work/direct")"
    expect "B6 $mock $path: type" "$(grep -i '^content-type' <<<"$head" | cut -d' ' -f2- | tr -d ' ;')" \
        "$(tr -d '\r' <"$work/direct.head" | grep -i '^content-type' | cut -d' ' -f2- | tr -d ' ;')"
    expect "x-request-id is ours" "$(grep -c -i '^x-request-id: pst_[0-9a-f]*$' <<<"$head")" 1
    contains "the upstream's goes on" "$head" '^x-upstream-request-id: req_sim_[0-9]+$'
    expect "no word of ours" "$(grep -c -i '^x-penstock\|^x-accel-expires' <<<"$head")" 0
done <<'EOF'
size=100000 /v1/chat/completions
events=20 /v1/chat/completions ,"stream":true
events=3 /v1/responses ,"stream":true
n=2 /v1/images/generations
partials=2 /v1/images/generations ,"stream":true
chunked /v1/embeddings
status=429 /v1/chat/completions
status=500,dialect=html /v1/chat/completions
gzip /v1/chat/completions
size=9 /nothing/there
EOF
direct -I "$url/v1/models"
call -X HEAD -p /v1/models
expect "HEAD" "$code $status $(wc -c <"$work/body")" "0 $(sed -n '1s/^[^ ]* \([0-9]*\).*/\1/p' "$work/direct.head") 0"
expect "HEAD: length" "$(sed -n 's/^[Cc]ontent-[Ll]ength: //p' <<<"$head")" "$(tr -d '\r' <"$work/direct.head" | sed -n 's/^[Cc]ontent-[Ll]ength: //p')"
call -p /models
expect "without /v1" "$code $status" "0 200"
call -p /v1/responses -X GET -H 'Upgrade: websocket'
expect_refusal "websocket" 426 penstock_websocket
contains "own answers have an id, too" "$head" '^x-request-id: pst_'

# ---- N6: default off leaves nothing behind of a call but its row ----
expect "off: no waits" "$(ledger 'select count(*) from waits')" 0
expect "the call is known" "$(row 'outcome, status')" 'refused\|426'
stop

# ---- without an upstream ----
url='' start_by_environment PENSTOCK_UPSTREAM=
call -p /v1/models
expect_refusal "no source" 500 penstock_no_source
contains "no source" "$head" '^x-should-retry: false$'
stop

# ---- keys of the gateway's own ----
url=http://127.0.0.1:$upstream_port
echo sk-of-the-source >"$work/key"
penstock_options='penstock_headers = true
log_level = debug
workers = 2'
source_options="api_key = @file:$work/key"
more=''
for dialect in azure gemini anthropic dashscope plain; do
    more+="
[source $dialect]
base_url = $url
api_key = @env:OTHER_KEY
dialect = $dialect
[route $dialect]
path = /$dialect/
strip_prefix = /$dialect
source = $dialect"
done
configure <<EOF
enabled = true
max_concurrent_requests = 1
$more
EOF
export OTHER_KEY=sk-of-another
start_penstock
brought=(-H 'Authorization: Bearer sk-of-the-client' -H 'X-Api-Key: sk-of-the-client' -H 'Api-Key: sk-of-the-client'
    -H 'X-Goog-Api-Key: sk-of-the-client' -H 'OpenAI-Organization: org-of-the-client' -H 'OpenAI-Project: project-of-the-client'
    -H 'Cookie: c=sk-of-the-client' -H 'Proxy-Authorization: sk-of-the-client' -H 'X-Penstock-Deadline: 5' -H 'X-Kept: kept')
while read -r prefix name value; do
    prefix=${prefix#-}
    call -p "$prefix/v1/chat/completions" "${brought[@]}" -H 'X-Mock: echo' -d '{}'
    expect "key of $prefix" "$code $status" "0 200"
    headers=$(headers_of "$work/body")
    contains "key of $prefix" "$headers" "^$name: $value\$"
    expect "one key of $prefix" "$(grep -c 'sk-of' <<<"$headers")" 1
    expect "nothing of the client's key, $prefix" "$(grep -c 'of-the-client\|^x-penstock' <<<"$headers")" 0
    contains "other headers, $prefix" "$headers" '^x-kept: kept$'
    expect "path of $prefix" "$(field "$work/body" path)" /v1/chat/completions
done <<'EOF'
- authorization Bearer sk-of-the-source
/azure api-key sk-of-another
/gemini x-goog-api-key sk-of-another
/anthropic x-api-key sk-of-another
/dashscope authorization Bearer sk-of-another
/plain authorization Bearer sk-of-another
EOF
call -p /v1/chat/completions -H "$json" -d '{"model":"m","messages":[]}'
for wanted in 'x-penstock-scope: all' 'x-penstock-source: up' 'x-penstock-wait-ms: 0' 'x-penstock-attempts: 1'; do
    contains "penstock_headers" "$head" "^$wanted\$"
done

# ---- N6: no key and no prompt in log, ledger, status, segment, nor in answers that are ours ----
prompt=a-prompt-that-nobody-else-writes
answers=''
keep() { answers+=$head$(body); }
secret=(-H "$json" "${brought[@]}")
document="{\"model\":\"gpt-image-2\",\"prompt\":\"$prompt\",\"messages\":[{\"content\":\"$prompt\"}]}"
for mock in '' status=401 status=429 reset=read garbage close=100 close=300,stream=1 error_event=1,stream=1 endless_headers; do
    for path in /v1/images/generations /v1/chat/completions /v1/responses; do
        call -p "$path?key=sk-of-the-client&q=$prompt" "${secret[@]}" -H "X-Mock: $mock" -d "$document"
        keep
    done
done
call -p /v1/images/generations "${secret[@]}" -d "$document" -L 9 && keep
call -p /v1/images/generations "${secret[@]}" -d "{\"prompt\":\"$prompt" && keep
call -p /v1/images/edits "${brought[@]}" -H "$form" -d "--b 1
Content-Disposition: form-data; name=\"$prompt\"

$prompt" && keep
call -p "/v1/..?q=$prompt" "${secret[@]}" -d "$document" && keep
draw -H 'X-Mock: delay_ms=1500' "${secret[@]}" -d "$document" >/dev/null &
holder=$!
slot_is_taken() { [ "$(status_number used)" = 1 ]; }
until_true "the slot is taken" slot_is_taken
call -p /v1/images/generations "${secret[@]}" -d "$document" && keep
expect "refused" "$status" 429
pages=$(ctl status; ctl status --json; ctl queue; ctl slots; ctl metrics)
wait $holder
row outcome >/dev/null
ctl reload >/dev/null
"$penstockd" -c "$work/penstock.conf" -T >"$work/dump" 2>&1
contains "the dump has the key's place" "$(cat "$work/dump")" 'api_key'
secrets="of-the-client|of-the-source|sk-of-another|$prompt"
leaks() { # leaks WHAT FILE...
    if grep -aEq "$secrets" "${@:2}"; then fail "N6: $1: $(grep -aEo ".{60}($secrets)" "${@:2}" | head -n 3)"; fi
}
cp "/dev/shm/penstock-$gate" "$work/segment.copy" || fail "no segment"
printf '%s' "$pages" >"$work/pages"
printf '%s' "$answers" | grep -v '^x-request-id' >"$work/answers"
[ "$(wc -c <"$work/answers")" -gt 5000 ] || fail "answers were kept"
leaks log "$work/penstock.log"
leaks ledger "$work"/ledger.db*
leaks pages "$work/pages"
leaks segment "$work/segment.copy"
leaks dump "$work/dump"
leaks answers "$work/answers"
expect "integrity" "$(ledger 'pragma integrity_check')" ok
