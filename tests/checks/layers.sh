#!/usr/bin/env bash
# Layers: base/ includes only base/ and libc; shared/ also shared/ and, in the ledger, SQLite; each
# library's header is included by the files that own it and nobody else.
set -euo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C

# HEADER (regex)      FILES that may include it (regex)
rules='^fcgi            ^worker/fastcgi\.c$
^curl/            ^worker/http_connection\.c$
^openssl/         ^worker/http_trust\.c$
^json-c/          ^worker/
^sqlite3\.h$      ^shared/ledger[a-z_]*\.[ch]$
^sys/sem\.h$      ^shared/slots\.c$
^sys/ipc\.h$      ^shared/slots\.c$
^base/            .
^shared/          ^(shared|worker)/
^worker/          ^worker/
^tests/           ^$'

bad=$(grep -nE '^[[:space:]]*#[[:space:]]*include' base/*.[ch] shared/*.[ch] worker/*.[ch] |
    sed -E 's/^([^:]+):([0-9]+):[^<"]*[<"]([^>"]+)[>"].*/\1 \2 \3/' |
    while read -r file line header; do
        while read -r pattern owners; do
            [[ $header =~ $pattern ]] || continue
            [[ $file =~ $owners ]] || echo "$file:$line: may not include $header (only $owners may)"
        done <<<"$rules"
        # "x.h" without its folder would escape the rules above.
        [[ $header == */* || ! -e ${file%/*}/$header ]] ||
            echo "$file:$line: write the folder: ${file%/*}/$header"
    done)

# shared/ works on what it is given: no clock, no log of its own. (A bounded wait for the lock itself
# takes a deadline on the kernel's clock.)
clock=$(grep -nE '\b(clock_monotonic_ns|clock_wall_ms|clock_gettime|time\(NULL\)|log_event|log_begin)\b' shared/*.c |
    grep -v '^shared/lock\.c:.*CLOCK_MONOTONIC' || true)

[[ -z $bad$clock ]] || { printf "%s\n" "$bad" "$clock"; exit 1; }
