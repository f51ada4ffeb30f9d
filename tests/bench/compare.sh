#!/usr/bin/env bash
# Is P1 to P4 dearer than it was, or with flow control than without? Two Penstocks behind nginx in one run.
#   BEFORE=DIRECTORY make bench-compare   beside the penstockd of another checkout's build directory
#   FLOW=1 make bench-compare             flow = shaping, with the largest quotas, beside flow = none
#   FLOW=rate make bench-compare          the same with flow = rate
#   ROUNDS=5                              instead of 9; one takes about a minute and a half
#   ONLY=P1,P3                            only these (P1 P2 P3 P4)
#   KEEP=1                                keep the servers' files and logs
# Exit 1 when a ratio is above 1.03. Also in $BUILD/bench-results/compare/: report.md, and results.json with
# every run.
set -euo pipefail
cd "$(dirname "$0")/../.."
export BUILD=${BUILD:-build/release}
if [[ -n ${BEFORE-} && -n ${FLOW-} || -z ${BEFORE-}${FLOW-} ]]; then
    echo "bench-compare: set BEFORE=DIRECTORY (with a penstockd in it) or FLOW=1, one of them" >&2
    exit 2
fi
prefix=
for name in BEFORE FLOW ROUNDS ONLY; do
    if [[ -n ${!name-} ]]; then prefix+="$name=${!name} "; fi
done
export BENCH_COMMAND="${prefix}make bench-compare"
ulimit -n "$(ulimit -Hn)"
node tests/bench/compare.mjs
