#!/usr/bin/env bash
# Run test programs and scripts, and count what they really did.
#   tests/run.sh PROGRAM|SCRIPT ...
# Programs (cmocka) run two at a time and count each of their tests; then scripts run one after another
# and count as one each; one that mostly waits says so in a line "# beside: others", and runs beside them.
# The output of what fails is shown, all of it stays in $BUILD/test-logs/.
# A script ends with 0 = passed, 77 = skipped, else failed; one whose last line is "N passed, N failed"
# counts as that. Each has 120 s, or what a line
# "# timeout: SECONDS" in the script (a "timeout: SECONDS" in the first lines of the program's source)
# says, times $TEST_TIME_FACTOR. $TEST_WRAPPER goes in front of programs (valgrind).
# The last line is "N passed, N failed" (and ", N skipped" when some were).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export BUILD=${BUILD:-build/release}
logs=$BUILD/test-logs
rm -rf "$logs"
mkdir -p "$logs"

passed=0 failed=0 skipped=0
failures=()

allowed_seconds() { # PATH -> seconds
    local source=$1 own
    if [[ $source != *.sh ]]; then source=tests/${1#*/tests/bin/}.c; fi
    own=$(head -n 15 "$source" 2>/dev/null | sed -n 's/.*timeout: \([0-9][0-9]*\).*/\1/p' | head -n 1)
    echo $((${own:-120} * ${TEST_TIME_FACTOR:-1}))
}

log_of() { # PATH -> log file without its ending
    local name=${1#*/tests/bin/}
    name=${name#tests/}
    echo "$logs/${name//\//__}"
}

run_one() { # PATH: run it, leave .log, .code and .ms
    local path=$1 log begin wrapper=()
    log=$(log_of "$path")
    begin=$(date +%s%N)
    if [[ $path == *.sh ]]; then
        wrapper=(bash)
    elif [[ -n ${TEST_WRAPPER-} ]]; then
        read -r -a wrapper <<<"$TEST_WRAPPER"
    fi
    timeout -k 10 "$(allowed_seconds "$path")" "${wrapper[@]}" "$path" >"$log.log" 2>&1 </dev/null
    echo $? >"$log.code"
    echo $((($(date +%s%N) - begin) / 1000000)) >"$log.ms"
}

# Sum of the numbers in cmocka's lines "[  PASSED  ] 12 test(s)." of one kind.
cmocka_sum() { # KIND LOG
    sed -n "s/^\[  *$1  *\] \([0-9][0-9]*\) test(s).*/\1/p" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}

count_one() { # PATH
    local path=$1 log code good bad skip word
    log=$(log_of "$path")
    code=$(cat "$log.code" 2>/dev/null || echo 1)
    good=0 bad=0 skip=0
    if [[ $path != *.sh ]]; then
        good=$(cmocka_sum PASSED "$log.log")
        bad=$(cmocka_sum FAILED "$log.log")
        skip=$(cmocka_sum SKIPPED "$log.log")
    elif [[ $(tail -n 1 "$log.log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
        good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]} skip=${BASH_REMATCH[4]:-0}
    fi
    # A script, or a program that died, hung, leaked, or ran no test at all.
    if ((code == 77)); then
        skip=1
    elif ((code != 0 && bad == 0)); then
        bad=1
    elif ((code == 0 && bad == 0 && good + skip == 0)); then
        if [[ $path == */tests/bin/* ]]; then bad=1; else good=1; fi
    fi
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skip))
    word=ok
    ((skip > 0 && good == 0)) && word=skip
    ((bad > 0)) && word=FAIL
    printf '%-4s %s (%d) %d.%03d s\n' "$word" "${path#*/tests/bin/}" "$((good + bad + skip))" \
        $(($(cat "$log.ms") / 1000)) $(($(cat "$log.ms") % 1000))
    [[ $word == skip ]] && tail -n 1 "$log.log" | sed 's/^/     | /'
    if [[ $word == FAIL ]]; then
        failures+=("${path#*/tests/bin/}")
        case $code in 124 | 137) echo "     | no end within $(allowed_seconds "$path") s" ;; esac
        tail -n 60 "$log.log" | sed 's/^/     | /'
        echo "     | exit $code; all of it: $log.log"
    fi
}

programs=() scripts=()
for path in "$@"; do
    if [[ $path == *.sh ]]; then scripts+=("$path"); else programs+=("$path"); fi
done
counted=0
count_ended() { # in the order of the arguments; .ms is the last that run_one leaves
    while ((counted < ${#programs[@]})) && [[ -s $(log_of "${programs[counted]}").ms ]]; do
        count_one "${programs[counted]}"
        counted=$((counted + 1))
    done
}
for path in "${programs[@]}"; do
    while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
    count_ended
    run_one "$path" &
done
wait
for path in "${programs[@]:counted}"; do count_one "$path"; done
alone=() beside=()
for path in "${scripts[@]}"; do
    if head -n 15 "$path" | grep -q '^# beside: others$'; then beside+=("$path"); else alone+=("$path"); fi
done
for path in "${beside[@]}"; do run_one "$path" & done
for path in "${alone[@]}"; do
    run_one "$path"
    count_one "$path"
done
wait
for path in "${beside[@]}"; do count_one "$path"; done

((${#failures[@]} == 0)) || printf 'failed: %s\n' "${failures[@]}"
summary="$passed passed, $failed failed"
((skipped == 0)) || summary+=", $skipped skipped"
echo "$summary"
((failed == 0 && passed > 0))
