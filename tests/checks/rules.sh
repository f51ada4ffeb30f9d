#!/usr/bin/env bash
# tests/scenarios/README.md tells which test shows which rule: there is a row for each of R1 to R44 and D1
# to D18, each file that it names exists and has the rule's number in it (or the number in brackets after
# the file), as R16 or, in the name of a function, as r16_.
set -euo pipefail
cd "$(dirname "$0")/../.."
index=tests/scenarios/README.md
bad=0
complain() { echo "$index: $1"; bad=1; }
for rule in R{1..44} D{1..18}; do
    row=$(grep -E "^\| $rule \|" "$index" || true)
    [[ $row && $row != *$'\n'* ]] || { complain "$rule has no row, or several"; continue; }
    tests=${row#| * | * | }
    [[ $tests == 'not applicable |' ]] && continue
    found=$(grep -oE '(scenarios|worker|shared|processes)/[a-z0-9_]+\.(txt|c|sh)( \([A-Z][0-9]+\))?' <<<"$tests" || true)
    [[ $found ]] || { complain "$rule names no test"; continue; }
    while read -r file number; do
        number=${number:-$rule}
        number=${number//[()]/}
        if [[ ! -e tests/$file ]]; then
            complain "$rule: there is no tests/$file"
        elif ! grep -qE "(^|[^A-Za-z0-9])(${number}|${number,,}_|[A-Za-z0-9_]*_${number})([^0-9]|$)" "tests/$file"; then
            complain "$rule: tests/$file does not name $number"
        fi
    done <<<"$found"
done
exit $bad
