#!/usr/bin/env bash
# timeout: 60
# Bad, odd and large request bodies: what passes does so byte for byte, what is refused touches nothing.
# G3 M16 N7 T01 T04 T08 T09 T20 T22 T23 T24 T27
# shellcheck source=tests/processes/lib_faults.sh
. "$(dirname "$0")/lib_faults.sh"
begin
start_upstream -d size=500
penstock_options='body_read_timeout_s = 1
max_json_body = 24m
max_multipart_body = 32m
max_params = 8k
workers = 2'
configure <<'EOF'
enabled = true
max_concurrent_requests = 1
overflow_mode = wait
EOF
start_penstock
images=/v1/images/generations edits=/v1/images/edits chat=/v1/chat/completions responses=/v1/responses

# passes WHAT PATH FILE KIND [options]: the upstream reads the same bytes, and the call is of that kind
passes() {
    local what=$1 path=$2 file=$3 kind=$4
    shift 4
    upstream_reset
    call -X POST -p "$path" -f "$file" "$@"
    expect "$what: client" "$code $status" "0 200"
    expect "$what: requests" "$(upstream_stat requests)" 1
    contains "$what: bytes at the upstream" "$(curl -s "http://127.0.0.1:$upstream_port/stats?last=1")" \
        "\"sha256\":\"$(sum "$file")\".*\"body_bytes\":$(wc -c <"$file"),"
    expect "$what: kind" "$(row kind)" "$kind"
    slots_are_back || fail "$what: a slot is still in use"
}
# refused WHAT STATUS CODE [options]: and the upstream hears nothing of it
refused() {
    local what=$1
    upstream_reset
    call "${@:4}"
    expect_refusal "$what" "$2" "$3"
    expect "$what: requests" "$(upstream_stat requests)" 0
    slots_are_back || fail "$what: a slot is in use"
}
padded() { printf '{"model":"m","messages":[],"user":"%0*d"}' "$1" 0 >"$work/in"; } # padded BYTES

# ---- JSON ----
n=0
while IFS='|' read -r kind path text; do
    printf '%b' "$text" >"$work/in"
    n=$((n + 1))
    passes "JSON $n" "$path" "$work/in" "$kind" -H "$json"
done <<'EOF'
responses|/v1/responses|{"model":"gpt-image-2","input":
responses|/v1/responses|{"model":"gpt-image-2"}}
image|/v1/responses|{"model":"gpt-image-2",}
image|/v1/images/generations|{"model": nonsense
image|/v1/images/generations|[]
image|/v1/responses|{"model":"gpt-5","input":"x","model":"gpt-image-2"}
image|/v1/responses|{"model":"gpt-image-2","input":"x","model":"gpt-5"}
image|/v1/responses|{"mod\\u0065l":"gpt-\\u0069mage-2"}
image|/v1/responses|{"model":"gpt-5","tools":[{"type":"image\\u005fgeneration"}]}
responses|/v1/responses|{"model":"gpt-5","input":"\\ud83d\\ude00 \\\\u0000 gpt-image-2"}
image|/v1/responses|\xef\xbb\xbf{"model":"gpt-image-2"}
chat|/v1/chat/completions|{"model":"m","messages":[{"content":"caf\xc3\xa9 \xff\xfe"}]}
chat|/v1/chat/completions|
chat|/v1/chat/completions|\n \t
EOF

deep() { printf '%*s' "$1" '' | tr ' ' '['; printf '%*s' "$1" '' | tr ' ' ']'; }
printf '{"model":"m","messages":[],"x":%s}' "$(deep 100)" >"$work/deep100"
printf '{"model":"m","messages":[],"x":%s}' "$(deep 200)" >"$work/deep200"
printf '%*s' 1000000 '' | tr ' ' '[' >"$work/abyss"
passes "100 levels" $chat "$work/deep100" chat -H "$json"
refused "200 levels of chat" 400 penstock_body_too_deep -p $chat -f "$work/deep200" -H "$json"
refused "200 levels of responses" 400 penstock_body_too_deep -p $responses -f "$work/deep200" -H "$json"
refused "a million levels" 400 penstock_body_too_deep -p $responses -f "$work/abyss" -H "$json"
passes "200 levels of images: the path decides" $images "$work/deep200" image -H "$json"
passes "200 levels of embeddings: never an image" /v1/embeddings "$work/deep200" embedding -H "$json"

{
    printf '{"input":"'
    head -c 15000000 /dev/urandom | base64 -w 0
    printf '","model":"gpt-image-2"}'
} >"$work/huge"
passes "T24: 20 MB JSON, model last" $responses "$work/huge" image -H "$json"

# ---- encodings ----
printf '{"model":"gpt-image-2"}' >"$work/plain"
gzip -c "$work/plain" >"$work/gzip"
iconv -t UTF-16 "$work/plain" >"$work/utf16"
iconv -t UTF-16LE "$work/plain" >"$work/utf16le"
refused "T27: gzip" 415 penstock_body_encoding -p $responses -f "$work/gzip" -H "$json" -H 'Content-Encoding: gzip'
refused "UTF-16" 415 penstock_body_encoding -p $chat -f "$work/utf16" -H "$json"
refused "UTF-16 without its mark" 415 penstock_body_encoding -p $responses -f "$work/utf16le" -H "$json"
passes "gzip of images: the path decides" $images "$work/gzip" image -H "$json" -H 'Content-Encoding: gzip'

# ---- multipart ----
head -c 3000000 /dev/urandom >"$work/png"
form() { # form BOUNDARY PART...: a part is "name", "name=value" or "@name;filename"
    local boundary=$1 part
    shift
    for part in "$@"; do
        printf -- '--%s\r\n' "$boundary"
        case $part in
        @*)
            printf 'Content-Disposition: form-data; name="%s"; filename="%s"\r\nContent-Type: image/png\r\n\r\n' \
                "$(cut -d';' -f1 <<<"${part#@}")" "$(cut -d';' -f2- <<<"$part")"
            cat "$work/png"
            ;;
        *) printf 'Content-Disposition: form-data; name="%s"\r\n\r\n%s' "${part%%=*}" "${part#*=}" ;;
        esac
        printf '\r\n'
    done
    printf -- '--%s--\r\n' "$boundary"
}
multipart() { # multipart WHAT CONTENT-TYPE: the body lies in $work/form
    passes "$1" $edits "$work/form" image -H "Content-Type: $2"
}
form b1 '@image[];a.png' '@image[];b.png' '@mask;m.png' prompt=x model=gpt-image-2 >"$work/form"
multipart "T01 T09: model last" 'multipart/form-data; boundary=b1'
expect "model last is read" "$(row model_asked)" gpt-image-2
form b1 '@image;a.png' prompt=x >"$work/form"
multipart "no model" 'multipart/form-data; boundary=b1'
form b1 model=dall-e-2 '@image;a.png' model=gpt-image-2 >"$work/form"
multipart "model twice" 'multipart/form-data; boundary=b1'
form "b 1'()+_,-./:=?" '@image;a.png' model=gpt-image-2 >"$work/form"
multipart "T08: quoted boundary" "multipart/form-data; boundary=\"b 1'()+_,-./:=?\""
expect "T08: its model is read" "$(row model_asked)" gpt-image-2
form "$(printf '%070d' 0)" '@image;a.png' model=gpt-image-2 >"$work/form"
multipart "T08: 70 characters, blanks, upper case" "Multipart/Form-Data ;  BOUNDARY=$(printf '%070d' 0) ; charset=utf-8"
form b1 '@image;bild – größe "1"; \\ 名.png' '@image;' model=gpt-image-2 >"$work/form"
multipart "T04: raw UTF-8 filenames, quotes, none" 'multipart/form-data; boundary=b1'
{
    printf 'preamble\r\n--b1x\r\n\r\n'
    form b1 '@image;a.png' model=gpt-image-2
    printf 'epilogue --b1 \r\n--b1--'
} >"$work/form"
multipart "preamble and epilogue" 'multipart/form-data; boundary=b1'
form b1 '@image;a.png' | head -c 1000 >"$work/form"
multipart "no end" 'multipart/form-data; boundary=b1'
multipart "another boundary than announced" 'multipart/form-data; boundary=zzz'
multipart "no boundary" 'multipart/form-data'
multipart "boundary too long" "multipart/form-data; boundary=$(printf '%0500d' 0)"

# ---- lengths ----
padded 100000
size=$(wc -c <"$work/in")
for length in '' -1 abc "0x$size" 99999999999999999999999; do
    passes "T20: CONTENT_LENGTH \"$length\"" $chat "$work/in" chat -H "$json" -L "$length"
done
passes "T20: CONTENT_LENGTH empty, then right" $chat "$work/in" chat -H "$json" -L '' -P CONTENT_LENGTH=
refused "announced too long" 400 penstock_body_incomplete -p $chat -f "$work/in" -L $((size + 1))
refused "announced too short" 400 penstock_body_incomplete -p $chat -f "$work/in" -L $((size - 1))
refused "announced none" 400 penstock_body_incomplete -p $chat -f "$work/in" -L 0
for length in '' $size; do
    refused "cut, CONTENT_LENGTH \"$length\"" 400 penstock_body_incomplete -p $images -f "$work/in" -k 50000 -L "$length"
done
refused "cut at once" 400 penstock_body_incomplete -p $images -f "$work/in" -k 0
head -c 26000000 "$work/huge" >"$work/long"
cat "$work/huge" >>"$work/long"
refused "T22: announced over the limit" 413 penstock_body_too_large -p $chat -d x -L 25165825 -H "$json"
contains "T22: the limit is named" "$(body)" '25165824 bytes'
refused "T23: over the limit" 413 penstock_body_too_large -p $images -f "$work/long" -H "$json"
refused "T23: over the limit, no length" 413 penstock_body_too_large -p $images -f "$work/long" -H "$json" -L ''
refused "over the limit of forms" 413 penstock_body_too_large -p $edits -f "$work/long" -H 'Content-Type: multipart/form-data; boundary=b1' -L ''
all_well "lengths"

# ---- slow bodies ----
padded 2000
ask -p $images -f "$work/in" -w 400 >"$work/slow" &
slow=$!
a_thread_is_busy() { ctl status --json | grep -q '"threads_busy": *[1-9]'; }
until_true "M16: the slow one is being read" a_thread_is_busy
all_well "N7: beside a slow body"
wait $slow
contains "M16: slow body" "$(cat "$work/slow")" '^Status: 408'
contains "M16: slow body" "$(cat "$work/slow")" '"code":"penstock_body_too_slow"'
padded 6000
passes "M16: slow, but at the least rate" $chat "$work/in" chat -w 3500

# ---- 20 MB that wait for a slot do so in a file ----
form b1 '@image[];'{1,2,3,4,5,6,7}.png model=gpt-image-2 >"$work/form"
size=$(wc -c <"$work/form")
spooled() { # the files of our workers that are as long as the body
    local pid
    for pid in $(workers); do find -L "/proc/$pid/fd" -type f -size "${size}c" 2>/dev/null; done
}
anonymous() {
    local pid sum=0
    for pid in $(workers); do sum=$((sum + $(memory_kb "$pid" RssAnon))); done
    echo $sum
}
passes "20 MB" $edits "$work/form" image -H 'Content-Type: multipart/form-data; boundary=b1'
draw -H 'X-Mock: delay_ms=1500' >"$work/answer" &
holder=$!
in_use_is() { [ "$(status_number used)" = "$1" ]; }
until_true "the slot is taken" in_use_is 1
before=$(anonymous)
ask -p $edits -f "$work/form" -H 'Content-Type: multipart/form-data; boundary=b1' -H 'X-Mock: echo' >"$work/big" &
big=$!
waiting_is() { [ "$(ledger 'select count(*) from show_queue')" = "$1" ]; }
until_true "the upload waits" waiting_is 1
grown=$(($(anonymous) - before))
expect_memory_below "T24: a waiting upload of $size bytes" "$grown" 4096
if [ "$(id -u)" = 0 ]; then expect "it lies in a file" "$(spooled | wc -l)" 1; fi
expect "the file has no name" "$(find "$work" -maxdepth 1 -name 'spool*' | wc -l)" 0
wait $holder $big
contains "the waiting upload arrives whole" "$(cat "$work/big")" "\"sha256\":\"$(sum "$work/form")\""
expect "no file is left" "$(spooled | wc -l)" 0

# ---- paths, headers, other protocols ----
for path in /v1/images%2Fgenerations /v1//images/generations //v1/images /v1/../v1/images /v1/images/.. \
    /v1/./images /v1/images/. /v1/images%00 /v1/images%2f..%2fchat /v1/%2e%2e/images '/v1/a\b' /v1/%5c /v1/%zz \
    /v1/% v1/images http://other/v1/images '*'; do
    refused "path $path" 400 penstock_bad_path -p "$path" -d x
done
call -p /v1/images/gener%61tions -f "$work/plain" -H "$json"
expect "an encoded path is decoded" "$(row kind)" image
contains "an encoded path goes on as it is" "$(curl -s "http://127.0.0.1:$upstream_port/stats?last=1")" '"path":"/v1/images/gener%61tions"'
contains "what is logged of a bad path is its own" "$(grep penstock_bad_path "$work/penstock.log" | grep -c 'path=/v1/images ')" '^[1-9]'
refused "websocket" 426 penstock_websocket -X GET -p $responses -H 'Upgrade: websocket' -H 'Connection: Upgrade'
refused "headers too large" 431 penstock_headers_too_large -p $images -d x -H "X-Long: $(printf '%09000d' 0)"
refused "headers too large for FastCGI" 431 penstock_headers_too_large -p $images -d x -H "X-Long: $(printf '%065420d' 0)"
for method in TRACE trace CONNECT; do
    refused "method $method" 405 penstock_method -X $method -p $responses
    contains "method $method: which there are" "$head" '^Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS$'
done
refused "no method" 400 penstock_bad_request -X '' -p $images -d x
all_well "paths"
sed -i 's#^path = /v1/#path = /v1/images/#' "$work/penstock.conf"
generation=$(status_number generation)
ctl reload >/dev/null
newer() { [ "$(status_number generation)" -gt "$generation" ] && [ "$(workers | wc -l)" -eq 2 ]; }
until_true "a new generation serves alone" newer
refused "unknown route" 404 penstock_no_route -p $chat -d x
refused "unknown route, no body" 404 penstock_no_route -p /

# ---- the gate off: nothing of a body is judged but its size ----
sed -i 's#^path = /v1/images/#path = /v1/#; s/^enabled = true/enabled = false/' "$work/penstock.conf"
generation=$(status_number generation)
ctl reload >/dev/null
until_true "the gate is off" newer
passes "off: 200 levels" $chat "$work/deep200" chat -H "$json"
passes "off: gzip" $responses "$work/gzip" responses -H "$json" -H 'Content-Encoding: gzip'
passes "off: UTF-16" $chat "$work/utf16" chat -H "$json"
expect "integrity" "$(ledger 'pragma integrity_check')" ok
