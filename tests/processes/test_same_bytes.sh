#!/usr/bin/env bash
# timeout: 120
# What a route with a single source answers was recorded before there were scopes, retries and hedges
# (recorded.txt): it is the same today, byte for byte. A scope that has nothing to try again answers the same.
# H10 B1
# RECORD=1 writes recorded.txt anew.
# shellcheck source=tests/processes/lib_faults.sh
. "$(dirname "$0")/lib_faults.sh"
begin
start_upstream -d seed=7
has_scopes=yes
[ -z "${RECORD:-}" ] || has_scopes=''
penstock_options='workers = 2
log_level = warning' source_options='timeout_s = 3
stream_idle_timeout_s = 1' configure <<'END'
END
if [ -n "$has_scopes" ]; then
    cat >>"$work/penstock.conf" <<END

[source other]
base_url = http://127.0.0.1:$upstream_port

[scope off]
sources = up, other
[route off]
path = /off/
strip_prefix = /off
scope = off

[scope on]
sources = up, other
hedge_after_s = 2
[route on]
path = /on/
strip_prefix = /on
scope = on
END
fi
start_penstock
recorded=$(dirname "$0")/recorded.txt

# Head and body of the answer, without what is another each time.
answer() { # answer PATH MOCK BODY
    call -p "$1" -H "$json" -H "X-Mock: $2" -d "$3"
    echo "$code"
    sed -E '/^(Date|x-request-id|x-upstream-request-id):/Id' <<<"$head"
    sed -E 's/"request_id":"req-sim-[0-9]+"//' "$work/body"
}
corpus() {
    local path members keys
    while read -r path members; do
        for keys in '' size=3000 usage=2 chunked,chunk=100 gzip,size=4000 no_length,size=2000 close_after ctype=text/plain \
            stream=0 events=30,comments=2,chunk_ms=2 events=3,done=1 events=0 error_event=2 bad_event=2 incomplete url n=2,size=300 \
            odd_headers,limit_requests=60,remaining_requests=59,reset_requests=1s status=201 redirect interim=2; do
            printf '%s %s {"model":"m","seed":1%s}\n' "$path" "${keys:-comments=0}" "$members"
        done
        for keys in 400 401 402 403 404 408 409 413 422 429 500 502 503 504; do
            printf '%s status=%s,retry_after=7 {"model":"m"%s}\n' "$path" $keys "$members"
        done
        for keys in azure dashscope compatible gemini anthropic html plain empty; do
            printf '%s status=429,dialect=%s {"model":"m"%s}\n' "$path" $keys "$members"
        done
        for keys in close=read reset=head close=300 reset=300 stall=300 garbage; do
            printf '%s size=2000,%s {"model":"m"%s}\n' "$path" $keys "$members"
        done
    done <<'END'
/v1/chat/completions ,"messages":[]
/v1/chat/completions ,"messages":[],"stream":true
/v1/responses ,"input":"x"
/v1/responses ,"input":"x","stream":true
/v1/messages ,"messages":[],"stream":true
/v1/embeddings ,"input":"x"
/v1/images/generations ,"prompt":"x"
/v1/images/generations ,"prompt":"x","stream":true,"partial_images":2
END
}
if [ -n "${RECORD:-}" ]; then
    corpus | while read -r path keys document; do
        printf '%s %s %s %s\n' "$(answer "$path" "$keys" "$document" | sha256sum | cut -c1-16)" "$path" "$keys" "$document"
    done >"$recorded"
    echo "recorded $(wc -l <"$recorded")"
    exit 0
fi
expect "the corpus is the recorded one" "$(cut -d' ' -f2- "$recorded" | sha256sum)" "$(corpus | sha256sum)"
cases=0
while read -r wanted path keys document; do
    cases=$((cases + 1))
    answer "$path" "$keys" "$document" >"$work/direct"
    got=$(sum "$work/direct")
    [ "${got:0:16}" = "$wanted" ] || fail "B1: $path $keys: not as recorded: $(head -c 600 "$work/direct" | tr '\0' '?')"
    # What is not tried again, and does not break, passes through a scope as it is.
    case $keys in
    status=[45]* | *close=* | *reset=* | *stall=* | garbage | *,garbage | error_event=2) continue ;;
    esac
    for scope in off on; do
        answer "/$scope$path" "$keys" "$document" >"$work/scope"
        cmp -s "$work/direct" "$work/scope" || fail "H10: scope $scope: $path $keys: another answer: $(diff -a "$work/direct" "$work/scope" | head -c 600)"
    done
done <"$recorded"
echo "$cases answers"
