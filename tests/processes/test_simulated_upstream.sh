#!/usr/bin/env bash
# The simulated upstream keeps its word: the other process tests rest on it.
# Above all: images_open_max never counts a caller twice that closed one call and then opened another.
set -u

tools=${BUILD:-build/release}/tools
work=$(mktemp -d)
failed=0
mkfifo "$work/out"
"$tools/simulated_upstream" -q -l "$work/sent" >"$work/out" &
pid=$!
trap 'kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; rm -rf "$work"' EXIT
read -r _ port <"$work/out"
url=http://127.0.0.1:$port

expect() { # NAME GOT PATTERN
    if ! printf '%s' "$2" | tr -d '\0' | grep -Eq -- "$3"; then
        printf 'FAILED: %s: wanted /%s/, got: %.300s\n' "$1" "$3" "$(printf '%s' "$2" | tr -d '\0')"
        failed=1
    fi
}
ask() { # MOCK PATH BODY [curl options]
    local mock=$1 path=$2 body=$3
    shift 3
    curl -sS -m 20 -H "X-Mock: $mock" -H 'Content-Type: application/json' -d "$body" "$@" "$url$path" 2>&1
}
status() { ask "$1" "$2" '{}' -o "$work/body" -w '%{http_code}'; }
stat() { curl -sS "$url/stats" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }
until_stat() { # NAME VALUE: wait for a condition, not for a time
    for _ in $(seq 400); do
        [ "$(stat "$1")" = "$2" ] && return
    done
    printf 'FAILED: %s never became %s\n' "$1" "$2"
    failed=1
}

chat=/v1/chat/completions
images=/v1/images/generations
expect ping "$(curl -sS "$url/ping")" pong

# The families.
expect chat "$(ask '' $chat '{"model":"m1"}')" '"model":"m1".*"content":"word0.*"usage"'
out=$(ask 'events=3' $chat '{"stream":true,"stream_options":{"include_usage":true}}')
expect chat-role "$out" '"role":"assistant"'
expect chat-events "$(grep -c '"content":"word' <<<"$out")" '^3$'
expect chat-usage "$out" '"choices":\[\],"usage"'
expect chat-done "$out" '^data: \[DONE\]'
expect completions "$(ask '' /completions '{}')" text_completion
expect embeddings "$(ask '' /v1/embeddings '{}')" '"embedding":\['
expect models "$(curl -sS "$url/v1/models")" gpt-image-2
expect messages "$(ask '' /v1/messages '{"stream":true}')" message_stop
out=$(ask 'size=4000' $images '{"n":3}')
expect pictures "$(grep -o '"b64_json":"[A-Za-z0-9+/]\{4000\}"' <<<"$out" | sort -u | wc -l)" '^3$'
out=$(ask 'partials=2' $images '{"stream":true}')
expect partials "$(grep -c '^event: image_generation.partial_image' <<<"$out")" '^2$'
expect completed "$out" '^event: image_generation.completed'
out=$(curl -sS -F 'image[]=@/bin/true' -F model=gpt-image-2 -F stream=true "$url/v1/images/edits")
expect edit-stream "$out" '^event: image_edit.completed'
out=$(ask 'partials=1' /v1/responses '{"stream":true,"tools":[{"type":"image_generation"}]}')
expect response-partial "$out" '"partial_image_b64":"[A-Za-z0-9+/]'
expect response-item "$out" '^data: .*output_item.done.*image_generation_call.*"result":"'
expect response-usage "$out" 'response.completed.*"tool_usage":\{"image_gen"'
out=$(ask 'job_ms=150' /v1/responses '{"background":true,"tools":[{"type":"image_generation"}]}')
expect queued "$out" '"status":"queued"'
id=$(sed 's/{"id":"\([^"]*\)".*/\1/' <<<"$out")
for _ in $(seq 400); do
    out=$(curl -sS "$url/v1/responses/$id")
    grep -q '"status":"completed"' <<<"$out" && break
done
expect background "$out" '"status":"completed".*"result":"'
out=$(ask 'job_ms=100000' /v1/responses '{"background":true}')
id=$(sed 's/{"id":"\([^"]*\)".*/\1/' <<<"$out")
expect cancel "$(ask '' "/v1/responses/$id/cancel" '')" '"status":"cancelled"'
out=$(ask 'job_ms=150,n=2,job_fail=1' /api/v1/services/aigc/text2image/image-synthesis '{}')
expect task "$out" '"task_status":"PENDING"'
id=$(sed 's/.*"task_id":"\([^"]*\)".*/\1/' <<<"$out")
for _ in $(seq 400); do
    out=$(curl -sS "$url/api/v1/tasks/$id")
    grep -q SUCCEEDED <<<"$out" && break
done
expect task-done "$out" '"code":"Internal.*"url":.*"image_count":1'
out=$(ask '' /v1beta/models/gemini-2.5-flash-image:generateContent '{}')
expect gemini "$out" '"inlineData":\{"mimeType":"image/png","data":"[A-Za-z0-9+/]'

# Bodies arrive whole, plain and in chunks; what is sent back is what was asked for.
head -c 3000000 /dev/urandom >"$work/blob"
sum=$(sha256sum <"$work/blob" | cut -d' ' -f1)
out=$(curl -sS -H 'X-Mock: echo' -H 'X-Odd: Yes' --data-binary "@$work/blob" "$url$chat?a=b")
expect echo "$out" "\"query\":\"a=b\".*\"x-odd\":\"Yes\".*\"body_bytes\":3000000,\"sha256\":\"$sum\""
out=$(curl -sS -H 'X-Mock: echo' -H 'Transfer-Encoding: chunked' -H 'Expect:' --data-binary "@$work/blob" "$url$chat")
expect echo-chunked "$out" "\"sha256\":\"$sum\",\"chunked\":true"
expect line "$(ask 'line=40m' $chat '{"stream":true}' | wc -c)" '^4194[0-9]{4}$'
plain=$(ask 'seed=7,size=200000' $images '{}' | sha256sum)
for how in chunked chunk=1000,chunked no_length gzip close_after gzip,chunked; do
    out=$(ask "seed=7,size=200000,$how" $images '{}' --compressed | sha256sum)
    expect "same bytes, $how" "$out" "^$plain\$"
done
expect gzip-stream "$(ask gzip $chat '{"stream":true}' --compressed)" '^data: \[DONE\]'

# Refusals and other ways to fail.
expect 429 "$(ask 'status=429,retry_after=7' $chat '{}' -i)" 'Retry-After: 7'
expect dashscope "$(ask 'status=429,dialect=dashscope' $chat '{}')" '"code":"Throttling.RateQuota"'
expect azure "$(ask 'status=429,dialect=azure' $chat '{}')" '"code":"429"'
expect gemini-429 "$(ask 'status=429,dialect=gemini,retry_after=37' $chat '{}')" '"retryDelay":"37s"'
expect code "$(ask 'status=429,code=insufficient_quota' $chat '{}')" '"code":"insufficient_quota"'
expect refusal "$(ask 'error=azure_requests' $chat '{}' -i)" 'retry-after-ms: 700'
expect refusal-words "$(ask 'error=compatible_quota' $chat '{}')" '"type":"insufficient_quota".*"code":"insufficient_quota".*"request_id"'
expect refusal-status "$(status 'error=anthropic_overloaded' $chat)" '^529$'
expect refusal-details "$(ask 'error=gemini_day' $chat '{}')" 'PerDay.*"retryDelay":"3600s"'
expect spend "$(ask 'error=anthropic_spend' $chat '{}')" '"error_code":"enforced_spend_limit_reached"'
expect refusal-200 "$(ask 'error=openai_overloaded,status=200' $chat '{"stream":true}' -w '%{http_code}')" '^\{"error".*server_is_overloaded.*200$'
expect should-retry "$(ask 'status=500,should_retry=0' $chat '{}' -i)" '^x-should-retry: false'
for wanted in 429 200; do expect times "$(status 'tag=a,times=1,status=429' $chat)" "^$wanted\$"; done
expect prefix "$(ask '' /m/status=503/v1/chat/completions '{}' -w '%{http_code}')" '503$'
expect model "$(ask '' $chat '{"model":"mock:status=500"}' -w '%{http_code}')" '500$'
expect bad-key "$(ask 'nonsense=1' $chat '{}')" 'bad X-Mock key'
expect error-event "$(ask 'error_event=2' $chat '{"stream":true}')" '^data: \{"error":'
out=$(ask 'error_event=1,error=openai_overloaded' $chat '{"stream":true}' -w '%{http_code}')
expect error-before-content "$(grep -c '"content":"word' <<<"$out")" '^0$'
expect error-in-stream "$out" '^data: \{"error":.*server_is_overloaded'
expect error-in-stream "$out" '^200$'
expect error-messages "$(ask 'error_event=0,error=anthropic_overloaded' /v1/messages '{"stream":true}')" '^data: \{"type":"error","error":\{"type":"overloaded_error"'
expect response-failed "$(ask 'error_event=1,failed,error=openai_insufficient_quota' /v1/responses '{"stream":true}')" '^event: response.failed'
expect bad-body "$(ask bad_event=0 $chat '{}')" '^\{"broken": \[$'
out=$(ask 'prelude_ms=250,events=2' $chat '{"stream":true}' -w '%{time_total}')
expect prelude-comments "$(grep -c '^: still' <<<"$out")" '^([3-9]|[1-9][0-9])$'
expect prelude-order "$(grep -n '^: still\|assistant\|word' <<<"$out" | sed 's/:.*role.*/ role/;s/:.*word.*/ word/;s/:: still.*/ comment/' | cut -d' ' -f2 | uniq | tr '\n' ' ')" '^role comment word $'
expect prelude-takes "$(tail -n 1 <<<"$out")" '^(0\.(2[5-9]|[3-9])|[1-9])'
expect tool "$(ask tool=level $chat '{}')" '"tool_calls":\[\{"id":.*"name":"level","arguments":"\{\\"place\\":\\"weir\\"\}"\}\}\].*"finish_reason":"tool_calls"'
expect tool-stream "$(ask tool=level $chat '{"stream":true}' | grep -c '"tool_calls":\[')" '^3$'
expect tool-response "$(ask tool=level /v1/responses '{"stream":true}')" '^event: response.function_call_arguments.done'
expect tool-answered "$(ask tool=level $chat '{"messages":[{"role":"tool"}]}')" '"content":"word'
expect reset "$(ask reset=head $chat '{}')" 'curl: \((56|52)\)'
expect reset-body "$(ask reset=100 $images '{}')" 'curl: \((56|18)\)'
expect close-read "$(ask close=read $chat '{}')" 'curl: \(52\)'
expect close-body "$(ask close=100 $images '{}')" 'curl: \(18\)'
expect close-chunk "$(ask close=100 $images '{"stream":true}')" 'curl: \(18\)'
expect midhead "$(ask close=midhead $chat '{}' -i | grep -ci content-length)" '^0$'
expect garbage "$(ask garbage $chat '{}')" 'curl: \(1\)'
expect garble "$(ask garble=300 $chat '{"stream":true}' -m 2)" 'curl: \((56|18|28)\)'
expect stall "$(ask stall=10 $chat '{}' -m 0.3)" 'curl: \(28\)'
expect endless "$(ask endless_headers $chat '{}' -m 2)" 'curl: \((56|28|27|100)\)'
expect redirect "$(ask redirect $chat '{}' -i)" 'Location: /redirected'
expect interim "$(ask interim=2 $chat '{}' -i)" 'HTTP/1.1 103'
expect early "$(curl -sS -H 'X-Mock: early,status=413' -H 'Expect:' --data-binary "@$work/blob" "$url$chat" -w '%{http_code}' 2>/dev/null)" '413$'
expect slow-read "$(head -c 30000 "$work/blob" | curl -sS -H 'X-Mock: echo,slow_read=100k' -H 'Expect:' --data-binary @- "$url$chat" -w ' %{time_total}')" '"body_bytes":30000.* (0\.[12]|0\.3)'
until_stat calls_open_now 0

# A quota, switched on and off for all callers.
expect defaults "$(curl -sS -d 'quota=2,quota_error=openai_requests' "$url/defaults")" '"defaults":"quota=2'
for wanted in 200 200 429; do expect quota "$(status '' $chat)" "^$wanted\$"; done
expect quota-words "$(cat "$work/body")" rate_limit_exceeded
expect quota-count "$(stat quota_refused)" '^1$'
served() { [ "$(status '' $chat)" = 200 ]; }
again=no
for _ in $(seq 400); do served && again=yes && break; done
expect quota-passes-again $again yes
curl -sS -d 'quota=1,quota_counts' "$url/defaults" >"$work/reset"
for _ in 1 2 3; do status '' $chat >"$work/reset"; done
expect quota-counts "$(status '' $chat)" '^429$'
expect bad-default "$(curl -sS -d 'quota=x' "$url/defaults")" '"bad_key":"quota=x"'
curl -sS -X POST "$url/defaults" >"$work/reset"
expect quota-off "$(status '' $chat)" '^200$'
ask '' $chat '{"model":"m-7","messages":[]}' >"$work/reset"
expect recorded "$(curl -sS "$url/stats?last=1")" '"model":"m-7".*"body":"\{\\"model\\":\\"m-7\\",'

# ---- limits ---------------------------------------------------------------------------------------
limit() { curl -sS "$url/limits?on=1&$1"; } # KEY=VALUE&...
fresh() { # all limits off but these, and nothing counted
    curl -sS "$url/limits/reset?on=1&rpm=0&tpm=0&rps_factor=0&tps_factor=0&burst_floor=0&burst_gain=0&shared_above=0&refused_above=0&refusals_count=0&hints=0&first_ms=0&input_us=0&output_us=0&dialect=compatible&$1" >/dev/null
}
limited() { curl -sS "$url/limits" | sed -n "s/.*\"$1\":\([0-9]*\)[,}].*/\1/p"; }
until_in_flight() {
    for _ in $(seq 200); do
        [ "$(limited in_flight)" = "$1" ] && return
    done
    printf 'FAILED: never %s in flight\n' "$1"
    failed=1
}

expect limits_bad_key "$(limit 'rpm=x')" '"bad_key":"rpm"'
expect limits_unknown "$(limit 'rqm=1')" '"bad_key":"rqm"'
expect limits_told "$(limit 'rpm=7')" '"rpm":7,"tpm":0'
fresh rpm=2
expect rpm_first "$(status out_tokens=3 $chat)$(status '' $chat)" '^200200$'
expect rpm_third "$(ask '' $chat '{}' -i)" '429 .*'
expect rpm_compatible "$(ask '' $chat '{}')" '"code":"limit_requests"'
expect rpm_counted "$(limited attempts)/$(limited admitted)/$(limited rpm)" '^4/2/2$'
expect rpm_raised "$(limit 'rpm=3' >/dev/null; status '' $chat)" '^200$'
for dialect in 'dashscope Throttling.RateQuota' 'openai rate_limit_exceeded'; do
    limit "dialect=${dialect% *}" >/dev/null
    expect "rpm_${dialect% *}" "$(ask '' $chat '{}')" "\"code\":\"${dialect#* }\""
done
limit hints=1 >/dev/null
expect hints "$(ask '' $chat '{}' -i)" 'x-ratelimit-remaining-requests: 0'
expect hints_wait "$(ask '' $chat '{}' -i)" 'retry-after-ms: [1-9]'
# Refused calls that count keep the minute full.
fresh 'rpm=1&refusals_count=1'
expect counted "$(status '' $chat)$(status '' $chat)$(status '' $chat) $(limited calls_in_any_minute)" '^200429429 3$'
fresh tpm=100
expect tpm_input "$(status in_tokens=101 $chat)" '^429$'
expect tpm_words "$(ask in_tokens=101 $chat '{}')" 'insufficient_quota'
expect tpm_output "$(status in_tokens=40,out_tokens=50 $chat)$(status in_tokens=11 $chat)$(status in_tokens=10 $chat)" '^200429200$'
expect tpm_seen "$(limited admitted_tokens)/$(limited good_tokens)" '^1[01][0-9]/1[01][0-9]$'
fresh bytes_per_token=10
expect tokens_of_bytes "$(ask out_tokens=5 $chat "{\"x\":\"$(head -c 992 /dev/zero | tr '\0' a)\"}")" '"prompt_tokens":101,"completion_tokens":5,"total_tokens":106'
fresh 'rpm=60&rps_factor=2'
expect rps "$(status '' $chat; status '' $chat; status '' $chat)" '^200200429$'
fresh 'burst_floor=2&burst_gain=3'
expect burst "$(status '' $chat)$(status '' $chat)$(ask '' $chat '{}')" '^200200.*limit_burst_rate'
fresh refused_above=1
limit first_ms=30000 >/dev/null
ask '' $chat '{}' -m 1 >/dev/null & busy=$!
until_in_flight 1
expect saturated "$(status '' $chat)" '^503$'
wait "$busy"
until_in_flight 0
expect left_is_not_done "$(limited admitted)/$(limited 'done')" '^1/0$'
# Two share what one has: each takes twice as long.
fresh 'shared_above=1&output_us=10000'
begun=$(date +%s%N)
ask out_tokens=20 $chat '{}' >/dev/null & one=$!
ask out_tokens=20 $chat '{"stream":true}' >"$work/stream"
wait "$one"
expect shared "$((($(date +%s%N) - begun) / 1000000))" '^(39[5-9]|[4-9][0-9][0-9])$'
expect shared_stream "$(cat "$work/stream")" 'DONE'
expect seconds "$(curl -sS "$url/limits/seconds")" '"attempts":2,"admitted":2'
# ---- -l: each POST that was read, with what it used ----
fresh 'rpm=1'
ask out_tokens=70,in_tokens=40 $chat '{}' -H 'X-Call: seven' >/dev/null
ask '' $chat '{}' >/dev/null
expect log "$(tail -n 2 "$work/sent" | head -n 1)" '^[0-9]{5,} [0-9]{5,} 200 40 70 done seven$'
expect log_refused "$(tail -n 1 "$work/sent")" '^[0-9]{5,} [0-9]{5,} 429 0 0 done -$'
fresh 'output_us=10000'
ask out_tokens=500,in_tokens=40 $chat '{"stream":true}' -m 0.4 >/dev/null
until_stat calls_open_now 0
expect log_left "$(tail -n 1 "$work/sent")" '^[0-9]{5,} [0-9]{5,} 200 40 [1-9][0-9]{0,2} left -$'
curl -sS "$url/limits?on=0" >/dev/null
expect limits_off "$(status '' $chat)" '^200$'

# Honest count: three at once are three; one after the other, closed by the caller, are never two.
curl -sS -d '' "$url/stats/reset" >"$work/reset"
for i in 1 2 3; do
    curl -sS -H 'X-Mock: delay_ms=60000' -d '{}' "$url$images" >/dev/null 2>&1 &
    waiting[i]=$!
done
until_stat images_open_now 3
kill "${waiting[@]}"
until_stat images_open_now 0
expect three "$(stat images_open_max)" '^3$'
expect aborted "$(stat aborted)" '^3$'
curl -sS -d '' "$url/stats/reset" >"$work/reset"
request="POST $images HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nX-Mock: delay_ms=60000\r\n\r\n{}"
for _ in $(seq 200); do
    exec 7<>"/dev/tcp/127.0.0.1/$port"
    # shellcheck disable=SC2059
    printf "$request" >&7
    exec 7>&-
done
until_stat images 200
until_stat images_open_now 0
# The worst order: what opens the second call is reported to the upstream before the close of the first.
exec 7<>"/dev/tcp/127.0.0.1/$port" 8<>"/dev/tcp/127.0.0.1/$port"
# shellcheck disable=SC2059
printf "$request" >&7
until_stat images_open_now 1
kill -STOP "$pid"
printf 'POST %s HTTP/1.1\r\n' "$images" >&8
exec 7>&-
printf 'Content-Length: 0\r\nX-Mock: delay_ms=60000\r\n\r\n' >&8
kill -CONT "$pid"
until_stat images 202
expect 'second is open' "$(stat images_open_now)" '^1$'
exec 8>&-
until_stat images_open_now 0
expect honest "$(stat images_open_max)" '^1$'
expect record "$(curl -sS "$url/stats?last=1")" '"path":"/v1/images/generations".*"end":"aborted".*"image":true'

mkfifo "$work/second"
"$tools/simulated_upstream" -q -n north >"$work/second" &
north=$!
read -r _ port <"$work/second"
url=http://127.0.0.1:$port
expect name "$(ask '' $chat '{}' -i)" '^x-upstream-name: north'
expect name-in-text "$(ask '' $chat '{}')" '"content":"north word'
expect name-in-stats "$(curl -sS "$url/stats")" '"name":"north"'
kill -TERM "$north"
wait "$north"

kill -TERM "$pid"
wait "$pid"
expect 'ends cleanly' "$?" '^0$'
exit "$failed"
