#!/usr/bin/env bash
# The map tells the truth: ARCHITECTURE.md has at most 200 lines and one entry for each source file, that
# is a line that begins (after "- " or "| ") with `worker/serve.[ch]`, `worker/main.c` or `shared/layout.h`, or
# has such an entry behind "; ";
# the Makefile lists every source file; the order of the steps is the same in worker/request.c's table, in
# STEPS of the Makefile and in the line "accept → identify → ..." of ARCHITECTURE.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C
bad=0
complain() { echo "$1"; bad=1; }
map=ARCHITECTURE.md
[[ -e $map ]] || { echo "there is no $map"; exit 1; }
(($(wc -l <"$map") <= 200)) || complain "$map has more than 200 lines"

expected=$(for file in {base,shared,worker}/*.[ch]; do
    stem=${file%.[ch]}
    if [[ -e $stem.c && -e $stem.h ]]; then echo "$stem.[ch]"; else echo "$file"; fi
done | sort -u)
# shellcheck disable=SC2016  # these are no expansions, but Markdown's marks
entries=$(sed 's,; `,\n- `,g' "$map" | sed -nE 's,^([-|*] *)?`((base|shared|worker)/[a-z0-9_]+\.(c|h|\[ch\]))`.*,\2,p' | sort)
difference=$(diff <(echo "$expected") <(echo "$entries") | sed -n 's/^< /missing: /p; s/^> /twice, or no such file: /p' || true)
[[ -z $difference ]] || complain "$map: entries and files differ:
$difference"

listed=$(for unit in $(make -s print-UNITS print-MAIN_penstockd print-MAIN_penstockctl); do echo "$unit.c"; done | sort)
difference=$(diff <(printf '%s\n' {base,shared,worker}/*.c | sort) <(echo "$listed") || true)
[[ -z $difference ]] || complain "the Makefile's lists (>) and the source files (<) differ:
$difference"

one_line() { tr -s '\n ' ' ' | sed 's/ $//'; }
steps_of_makefile=$(make -s print-STEPS | one_line)
steps_of_table=$(sed -n '/steps\[\] = {$/,/^};/p' worker/request.c 2>/dev/null |
    grep -oE '\b[a-z]+_step\b' | sed 's/_step$//' | awk '!seen[$0]++' | one_line || true)
steps_of_map=$(grep -m 1 -oE 'accept → [a-z →]+' "$map" | sed 's/ *→ */ /g' | one_line || true)
for found in "$steps_of_table" "$steps_of_map"; do
    [[ $found == "$steps_of_makefile" ]] || complain "order of steps: Makefile: $steps_of_makefile;
worker/request.c: $steps_of_table; $map: $steps_of_map"
done
exit $bad
