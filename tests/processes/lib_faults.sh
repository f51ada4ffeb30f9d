# lib_faults.sh - what the tests of bad input and upstream faults share, on top of lib.sh.
# shellcheck shell=bash
# shellcheck source=tests/processes/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# One call, its head in $head, its body in $work/body, the client's exit code in $code.
call() { # call [options of fcgi_client]
    rm -f "$work/body"
    head=$(ask -o "$work/body" "$@" 2>"$work/times" | tr -d '\r')
    code=$? # of the client: pipefail
    status=$(sed -n 's/^Status: \([0-9]*\).*/\1/p' <<<"$head" | head -n 1)
    status=${status:-200}
}
body() { head -c 4000 "$work/body" | tr '\0' '?'; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
json='Content-Type: application/json'

is_json() { [ "$(sqlite3 :memory: "select json_valid(cast(readfile('$1') as text))")" = 1 ]; }

# An own refusal: status, code, and all four keys of the error object in a document of its length.
expect_refusal() { # expect_refusal WHAT STATUS CODE
    expect "$1: end" "$code" 0
    expect "$1: status" "$status" "$2"
    contains "$1: code" "$(body)" "^\\{\"error\":\\{\"message\":\"[^\"]+.*\",\"type\":\"[a-z_]+\",\"param\":null,\"code\":\"$3\"\\}\\}$"
    contains "$1: type" "$head" '^Content-Type: application/json$'
    expect "$1: length" "$(sed -n 's/^Content-Length: //p' <<<"$head")" "$(wc -c <"$work/body")"
}

# Has the upstream read exactly so many requests since the last reset?
expect_requests() { expect "$1: requests at the upstream" "$(upstream_stat requests)" "$2"; }

slots_are_back() { [ "$(status_number used)" = 0 ]; }
# What every fault must leave behind: nothing held, and a good call works at once.
all_well() { # all_well WHAT
    until_true "$1: slots are back" slots_are_back
    call -p /v1/images/generations -H "$json" -d "$image"
    expect "$1: a good call afterwards" "$code $status" "0 200"
    contains "$1: a good answer afterwards" "$(body)" '"b64_json"'
}

# Columns of the last call's row, once the ledger has it.
row_is_there() { [ -n "$(ledger "select 1 from calls where call_id = '$id'" 2>/dev/null)" ]; }
row() { # row COLUMNS
    id=$(sed -n 's/^x-request-id: //p' <<<"$head")
    until_true "call $id is in the ledger" row_is_there
    ledger "select $1 from calls where call_id = '$id'"
}

memory_kb() { sed -n "s/^$2:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$1/status"; } # memory_kb PID VmHWM|RssAnon

# Sanitizers keep what was freed and shadow the rest: bounds on memory mean nothing then.
expect_memory_below() { # expect_memory_below WHAT GROWN_KB BOUND_KB
    ldd "$penstockd" | grep -q 'lib[at]san' || [ "$2" -lt "$3" ] || fail "$1: $2 kB of memory, at most $3 were expected"
}
