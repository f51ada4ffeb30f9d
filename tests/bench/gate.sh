#!/usr/bin/env bash
# The image gate, P5 and P6 beside HAProxy's queue, and hedging, P8, in about 4 minutes. Exit 1 when one of
# them does not hold.
set -euo pipefail
cd "$(dirname "$0")"
export ONLY=P5,P6,P8 MUST_HOLD=1 BENCH_COMMAND='make bench-gate'
exec ./run.sh
