#!/usr/bin/env bash
# The strategies of flow control against an upstream with limits, in fast time; a table and a plot (F13).
#   make bench-flow                  all of it; about SECONDS / SPEED for each run, 40 runs: 1 hour 10 minutes
#   SMOKE=1 make bench-flow          does it work at all? 20 seconds in all; its figures mean nothing
#   SECONDS_EACH=600                 length of a run, in its own time
#   SPEED=6                          how many times as fast as real time; work is not faster, so on a slow
#                                    machine a large one makes everything late: see "late" in the report
#   STRATEGIES=rate,shaping LOADS=mixed VARIANTS=free,counted SEEDS=1   only these
#   PUBLISH=1                        also put them into docs/flow-bench.md and docs/flow-bench.svg
#   KEEP=1                           keep the configurations and logs
# Also in $BUILD/bench-results/flow/: results.json with every second of every run.
set -euo pipefail
cd "$(dirname "$0")/../.."
export BUILD=${BUILD:-build/release}
prefix=
for name in SMOKE SECONDS_EACH SPEED STRATEGIES LOADS VARIANTS SEEDS; do
    if [[ -n ${!name-} ]]; then prefix+="$name=${!name} "; fi
done
export BENCH_COMMAND="${prefix}make bench-flow"
ulimit -n "$(ulimit -Hn)"
node tests/bench/flow.mjs
[[ -n ${PUBLISH-} ]] || exit 0
cp "$BUILD/bench-results/flow/flow-bench.md" "$BUILD/bench-results/flow/flow-bench.svg" docs/
