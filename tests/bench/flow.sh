#!/usr/bin/env bash
# The strategies of flow control against an upstream with limits, in fast time; a table and a plot (F13).
#   make bench-flow                  all of it: 48 runs, 1 hour 10 minutes
#   SMOKE=1 make bench-flow          does it work at all? 20 seconds in all; its figures mean nothing
#   SECONDS_EACH=600                 length of the longest runs (shift), in their own time; high and mixed take
#                                    three quarters of it, low a half
#   SPEED=6                          how many times as fast as real time; work is not faster, so on a slow
#                                    machine a large one makes everything late: see "late" in the report
#   STRATEGIES=rate,shaping LOADS=mixed VARIANTS=free,counted SEEDS=1-1   only these; another seed, other calls
#   ADD=1                            put these into the results of the last time, instead of what was there;
#                                    with the same SECONDS_EACH; SEEDS=2-1 runs nothing and writes the page again
#   PUBLISH=1                        also put them into docs/flow-bench.md and docs/flow-bench.svg
#   KEEP=1                           keep the configurations and logs, and what became of each call
# Also in $BUILD/bench-results/flow/: results.json with every second of every run.
set -euo pipefail
cd "$(dirname "$0")/../.."
export BUILD=${BUILD:-build/release}
prefix=
for name in SMOKE SECONDS_EACH SPEED STRATEGIES LOADS VARIANTS SEEDS ADD; do
    if [[ -n ${!name-} ]]; then prefix+="$name=${!name} "; fi
done
export BENCH_COMMAND="${prefix}make bench-flow"
ulimit -n "$(ulimit -Hn)"
node tests/bench/flow.mjs
[[ -n ${PUBLISH-} ]] || exit 0
cp "$BUILD/bench-results/flow/flow-bench.md" "$BUILD/bench-results/flow/flow-bench.svg" docs/
