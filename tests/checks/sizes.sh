#!/usr/bin/env bash
# A file has at most 600 lines, a function at most 70 (from its { to its }, both in the first column). No
# exceptions: split by noun.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/checks/files '*.c' '*.h' '*.sh' '*.mjs' | xargs awk '
    FNR == 1 { check_length(); file = FILENAME; start = 0 }
    { lines = FNR }
    /^\{/ { start = FNR }
    /^\}/ && start { if (FNR - start + 1 > 70) complain(file ":" start ": function of " FNR - start + 1 " lines"); start = 0 }
    function complain(text) { print text; bad = 1 }
    function check_length() { if (lines > 600) complain(file ": " lines " lines") }
    END { check_length(); exit bad }'
