# lib_calls.sh - what the tests of calls with several sources share, on top of lib_faults.sh: upstreams with
# names, each a process of its own and a [source] of the same name.
# shellcheck shell=bash
# shellcheck source=tests/processes/lib_faults.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib_faults.sh"
declare -A ports=() source_pids=() source_lines=() # by name
declare -A urls=()                                 # of those that are not simply http at their port
names=()                                           # in order
chat_path=/v1/chat/completions
log_sends='' # not empty: sources write to $work/NAME.sent what they were sent (simulated_upstream -l)

run_source() { # run_source NAME: (again) at its port
    local name=$1
    : >"$work/$name.log"
    "$BUILD/tools/simulated_upstream" -n "$name" -p "${ports[$name]:-0}" ${log_sends:+-l "$work/$name.sent"} >"$work/$name.log" 2>&1 &
    source_pids[$name]=$!
    pids+=("$!")
    until_true "source $name" grep -q '^port ' "$work/$name.log"
    ports[$name]=$(awk '/^port /{ print $2; exit }' "$work/$name.log")
}
start_source() { # start_source NAME [lines of its section]: runs, and is in the next configuration
    run_source "$1"
    names+=("$1")
    source_lines[$1]=${2:-}
}
kill_source() { # kill_source NAME: as if its machine were gone, but for the RSTs
    kill -KILL "${source_pids[$1]}"
    wait "${source_pids[$1]}" 2>/dev/null
}
source_url() { echo "http://127.0.0.1:${ports[$1]}"; }
of_source() { curl -s "$(source_url "$1")/stats?last=${3:-0}" | grep -o "\"$2\":[0-9]*" | head -n 1 | cut -d: -f2; } # NAME WHAT
last_of_source() { curl -s "$(source_url "$1")/stats?last=${2:-1}"; }                                            # NAME [HOW MANY]
source_is() { # source_is NAME [KEYS]: answers like this from now on
    curl -s -X POST -d "${2:-}" "$(source_url "$1")/defaults" >"$work/defaults"
    grep -q '"defaults"' "$work/defaults" || fail "source $1 does not know $2"
}
# Caddy in front of a source, with a certificate that an authority of the moment, $work/ca.pem, has signed.
start_tls() { # start_tls NAME
    local port folder=$work/tls
    mkdir "$folder"
    new_key() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "$@" 2>"$folder/openssl.log"; }
    echo 'subjectAltName=DNS:localhost,IP:127.0.0.1' >"$folder/names"
    if ! { new_key -x509 -days 2 -subj '/CN=test authority' -keyout "$folder/ca.key" -out "$work/ca.pem" &&
        new_key -subj /CN=localhost -keyout "$folder/key" -out "$folder/request" &&
        openssl x509 -req -in "$folder/request" -CA "$work/ca.pem" -CAkey "$folder/ca.key" -CAcreateserial -days 2 \
            -extfile "$folder/names" -out "$folder/certificate" 2>>"$folder/openssl.log"; }; then
        fail "certificates: $(cat "$folder/openssl.log")"
    fi
    # A port that was free a moment ago.
    "$BUILD/tools/simulated_upstream" >"$folder/port" 2>&1 &
    tls_pid=$!
    until_true "a free port" grep -q '^port ' "$folder/port"
    port=$(awk '{ print $2; exit }' "$folder/port")
    kill "$tls_pid"
    wait "$tls_pid" 2>/dev/null
    cat >"$folder/Caddyfile" <<EOF
{
	admin off
	auto_https off
	storage file_system $folder
}
https://localhost:$port {
	bind 127.0.0.1
	tls $folder/certificate $folder/key
	reverse_proxy 127.0.0.1:${ports[$1]} {
		flush_interval -1
	}
}
EOF
    XDG_DATA_HOME=$folder XDG_CONFIG_HOME=$folder caddy run --config "$folder/Caddyfile" --adapter caddyfile >"$folder/log" 2>&1 &
    tls_pid=$!
    pids+=("$tls_pid")
    urls[$1]=https://localhost:$port
    until_true "TLS in front of $1" curl -sf --cacert "$work/ca.pem" "${urls[$1]}/ping"
}
# Every source answers well and quickly, and has seen nothing yet.
all_sources_well() {
    local name
    for name in "${names[@]}"; do
        source_is "$name" ''
        curl -s -X POST "$(source_url "$name")/stats/reset" >/dev/null
    done
}
requests_of() { # requests_of NAME...: "2 0 1"
    local name all=''
    for name in "$@"; do all+=" $(of_source "$name" requests)"; done
    echo "${all# }"
}
expect_requests_of() { # expect_requests_of WHAT "NAME..." "COUNT..."
    # shellcheck disable=SC2086
    expect "$1: requests at $2" "$(requests_of $2)" "$3"
}

routed_scope() { # routed_scope NAME SOURCES [OPTION=VALUE;...]: a scope, and the route /NAME/ to it
    local options=${3:-}
    printf '[scope %s]\nsources = %s\n%s\n[route %s]\npath = /%s/\nstrip_prefix = /%s\nscope = %s\n\n' \
        "$1" "$2" "${options//;/$'\n'}" "$1" "$1" "$1" "$1"
}

configure_scopes() { # configure_scopes: [scope] and [route] sections from stdin
    local name key
    {
        printf '[penstock]\nlisten = unix:%s/penstock.sock\nstatus_listen = unix:%s/status.sock\n' "$work" "$work"
        printf 'state_directory = %s\nruntime_directory = %s\npenstock_headers = true\n%s\n' "$work" "$work" "${penstock_options:-}"
        for name in "${names[@]}"; do
            # With a key of ours: what is refused to it is not the caller's fault. "keyless" leaves it to the caller.
            key=''
            if [[ ${source_lines[$name]} != keyless* ]]; then
                echo "key-of-$name" >"$work/$name.key"
                chmod 600 "$work/$name.key"
                key="api_key = @file:$work/$name.key"
            fi
            printf '\n[source %s]\nbase_url = %s\n%s\n%s\n' "$name" "${urls[$name]:-$(source_url "$name")}" "$key" \
                "${source_lines[$name]#keyless}"
        done
        cat
        printf '\n[image_concurrency]\ngate = %s\n%s\n' "$gate" "${image_options:-}"
    } >"$work/penstock.conf"
}

# A chat call under a model name of its own, by which the ledger is asked; $head, $work/body, $code, $status.
number=0 model='' scope_path=''
chat() { # chat [members of the document] [options of fcgi_client]
    local members=${1:-}
    [ $# -eq 0 ] || shift
    number=$((number + 1))
    model=call-$number
    document="{\"model\":\"$model\",\"messages\":[]$members}"
    call -t -p "$scope_path$chat_path" -H "$json" -d "$document" "$@"
    # shellcheck disable=SC2034 # the tests read it
    ended_ms=$(tail -n 1 "$work/times" | cut -d' ' -f1) # when the last of it arrived
}
served_by() { # served_by WHAT NAME: 200, from this source, its text only
    expect "$1: end" "$code $status" "0 200"
    expect "$1: from" "$(header x-upstream-name)" "$2"
    contains "$1: text of $2" "$(body)" "\"content\":\"$2 "
}
header() { sed -n "s/^$1: //Ip" <<<"$head" | head -n 1; }
is_booked() { [ -n "$(ledger "select 1 from calls where model_asked = '$model'" 2>/dev/null)" ]; }
booked() { # booked COLUMNS: of the last call's row
    until_true "$model is in the ledger" is_booked
    ledger "select $1 from calls where model_asked = '$model'"
}
# The rows of the last call's attempts, "COLUMNS" joined by |, one attempt a word, in order.
attempts_are_there() {
    [ "$(ledger "select count(*) = attempts from calls join attempts on logical_call_id = call_id
        where model_asked = '$model' group by call_id" 2>/dev/null)" = 1 ]
}
attempts() { # attempts COLUMNS
    until_true "$model is in the ledger" is_booked
    until_true "the attempts of $model are in the ledger" attempts_are_there
    ledger "select $1 from attempts where logical_call_id = (select call_id from calls where model_asked = '$model') order by n" |
        tr '\n' ' ' | sed 's/ $//'
}
event_count() { ledger "select count(*) from events where name = '$1' and detail like '%source=$2%'"; }
# Is anything of the sources still taken? The status page tells of each.
source_state() { # source_state NAME FIELD: of the status page's JSON
    ctl status --json >"$work/status.json"
    sqlite3 :memory: "select json_extract(value, '\$.$2') from json_each(cast(readfile('$work/status.json') as text), '\$.sources')
        where json_extract(value, '\$.name') = '$1'"
}
source_state_is() { [ "$(source_state "$1" "$2")" = "$3" ]; }
sources_are_idle() {
    local name
    for name in "${names[@]}"; do source_state_is "$name" in_flight 0 || return 1; done
}
