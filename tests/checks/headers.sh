#!/usr/bin/env bash
# Every header compiles alone, whatever was included before it; lists (*_list.h) are no headers but data.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
bad=0
for header in base/*.h shared/*.h worker/*.h tests/*/*.h; do
    [[ -e $header && $header != *_list.h ]] || continue
    # Twice: that finds a missing include guard too.
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
        gcc -std=c17 -D_GNU_SOURCE -I. -Wall -Wextra -Werror -fsyntax-only -x c - || { echo "$header"; bad=1; }
done
exit $bad
