#!/usr/bin/env bash
# The linter for shell has nothing to say about any script.
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t scripts < <(tests/checks/files | while read -r file; do
    [[ $file == *.sh ]] || head -c 64 "$file" 2>/dev/null | head -n 1 | grep -aqE '^#!.*\b(ba)?sh\b' || continue
    echo "$file"
done)
shellcheck --severity=info --external-sources "${scripts[@]}"
