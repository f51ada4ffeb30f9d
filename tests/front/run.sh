#!/usr/bin/env bash
# timeout: 400
# The real Apache, Caddy and nginx in front of Penstock, used by the official OpenAI client.
#   tests/front/run.sh [FILE.mjs ...]      FRONT=caddy: only that server; see README.md
# Ends with "N passed, N failed" over all files.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
export BUILD=${BUILD:-build/release}

for needed in node npm sqlite3 apache2 nginx caddy; do
    PATH=$PATH:/usr/sbin command -v "$needed" >/dev/null || { echo "front: $needed is missing" >&2; exit 1; }
done
if ! cmp -s package-lock.json node_modules/.penstock-lock; then
    npm ci --silent --no-audit --no-fund || exit 1
    cp package-lock.json node_modules/.penstock-lock
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
files=("$@")
((${#files[@]} > 0)) || files=(*.mjs)
passed=0 failed=0
for file in "${files[@]}"; do
    name=$(basename "$file")
    echo "== $name"
    timeout -k 5 "${FILE_TIMEOUT:-150}" node --test \
        --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=tap --test-reporter-destination="$logs/$name.tap" "$name"
    code=$?
    good=$(sed -n 's/^# pass \([0-9]*\)$/\1/p' "$logs/$name.tap")
    bad=$(sed -n 's/^# fail \([0-9]*\)$/\1/p' "$logs/$name.tap")
    cancelled=$(sed -n 's/^# cancelled \([0-9]*\)$/\1/p' "$logs/$name.tap")
    passed=$((passed + ${good:-0}))
    failed=$((failed + ${bad:-0} + ${cancelled:-0}))
    # Died, hung, or ran nothing at all.
    if ((code != 0 && ${bad:-0} + ${cancelled:-0} == 0)) || ((${good:-0} + ${bad:-0} == 0)); then
        echo "front: $name did not come to its end (exit $code)" >&2
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
