#!/usr/bin/env bash
# Every source file has a test of its own name, or a line "FILE reason" in tests/checks/untested.txt; that
# list holds nothing that is tested or gone; every test file belongs to a source file.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=0
complain() { echo "$1"; bad=1; }
list=tests/checks/untested.txt
for file in {base,shared,worker}/*.c; do
    test=tests/${file%/*}/test_${file##*/}
    if [[ -e $test ]]; then
        grep -q "^$file " "$list" && complain "$list: $file has a test by now"
        grep -qE 'cmocka_run_group_tests' "$test" || complain "$test runs no test"
    else
        grep -qE "^$file [^ ]+" "$list" || complain "$file has neither $test nor a reason in $list"
    fi
done
while read -r file _; do
    [[ $file == '#'* || -e $file ]] || complain "$list: there is no $file"
done <"$list"
for test in tests/{base,shared,worker}/*.c; do
    [[ -e $test ]] || continue
    file=${test#tests/}
    file=${file/test_/}
    [[ -e $file ]] || complain "$test: there is no $file"
    # A test function that no list names would never run.
    grep -oE '^static void test_[a-z0-9_]+\(void \*\*' "$test" | sed -E 's/^static void ([a-z0-9_]+).*/\1/' |
        while read -r name; do
            (($(grep -cw "$name" "$test") >= 2)) || echo "$test: $name is never run"
        done | grep . && bad=1
done
exit $bad
