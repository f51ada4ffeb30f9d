#!/usr/bin/env bash
# The image gate alone: P5 and P6 beside HAProxy's queue, in about 2 minutes. Exit 1 when one of them does
# not hold.
set -euo pipefail
cd "$(dirname "$0")"
export ONLY=P5,P6 MUST_HOLD=1 BENCH_COMMAND='make bench-gate'
exec ./run.sh
