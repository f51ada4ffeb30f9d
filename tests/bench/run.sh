#!/usr/bin/env bash
# The tables of docs/performance.md, measured here and now, printed as Markdown.
#   make bench                    everything, about 25 minutes; on an otherwise quiet machine
#   ONLY=P1,P3 make bench         only these (P1 P2 P3 P4 P5 P6 P7 P8 P9 P10)
#   QUICK=1 make bench            one round of each and fewer peers, about 4 minutes
#   ROUNDS=9 make bench           more rounds than 5
#   LEDGER_ROWS=10000000 ...      P10 with a ledger up to that size (default 1,000,000)
#   PUBLISH=1 make bench          also put the tables into docs/performance.md, below its last heading
#   KEEP=1 ...                    keep the servers' files and logs
# Also in $BUILD/bench-results/: report.md, and results.json with every run.
set -euo pipefail
cd "$(dirname "$0")/../.."
export BUILD=${BUILD:-build/release}
for needed in node sqlite3 nginx haproxy caddy apache2; do
    PATH=$PATH:/usr/sbin command -v "$needed" >/dev/null || { echo "bench: $needed is missing; try: make bench-deps" >&2; exit 1; }
done
prefix=
for name in ONLY QUICK ROUNDS LEDGER_ROWS; do
    if [[ -n ${!name-} ]]; then prefix+="$name=${!name} "; fi
done
export BENCH_COMMAND=${BENCH_COMMAND:-${prefix}make bench}
# A thousand streams are three thousand descriptors in one server.
ulimit -n "$(ulimit -Hn)"
node tests/bench/bench.mjs
[[ -n ${PUBLISH-} ]] || exit 0
page=docs/performance.md
report=$BUILD/bench-results/report.md
{ sed '/^## The tables/q' "$page"; echo; cat "$report"; } >"$page.new"
mv "$page.new" "$page"
