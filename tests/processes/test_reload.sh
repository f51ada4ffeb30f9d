#!/usr/bin/env bash
# What a reload meets: a stop in its midst, another gate, another program, workers that cannot start.
# M7 G10
. "$(dirname "$0")/lib.sh"
begin
start_upstream
gate_options='enabled = true
max_concurrent_requests = 2'
configure <<<"$gate_options"
cp "$penstockd" "$work/penstockd" # the program on disk, to be replaced
penstockd=$work/penstockd
start_penstock
generation() { status_number generation; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }
refusals() { grep -c 'event=reload_refused' "$work/penstock.log"; }
is_refused() { [ "$(refusals)" -gt "$refused" ]; }
refuses() { # refuses WHAT: a reload is refused, and those who serve go on
    refused=$(refusals)
    kill -HUP "$master_pid"
    until_true "$1: the reload is refused" is_refused
    expect "$1: generation" "$(generation)" 1
    contains "$1: a call" "$(ask -p /v1/models)" '"object":"list"'
}

# ---- what only a restart changes is not changed by half ----
gate=other-$gate configure <<<"$gate_options"
refuses "another gate"
contains "the reason" "$(cat "$work/penstock.log")" 'image_concurrency.gate = other-.*: only a restart changes this; in force is test-'
began=$SECONDS
ctl reload >"$work/out" 2>&1 && fail "a reload that is refused: penstockctl"
((SECONDS - began <= 10 * ${TEST_TIME_FACTOR:-1})) || fail "penstockctl waited $((SECONDS - began)) s for a reload that was refused at once"
contains "what penstockctl says of it" "$(cat "$work/out")" 'the master refused it, and generation 1 still serves'
configure <<<"$gate_options"

# ---- the program on disk tests the configuration, not the one that runs ----
printf '#!/bin/sh\nexit 1\n' >"$work/new"
chmod 755 "$work/new"
mv "$work/new" "$work/penstockd"
refuses "a program that fails its test"
cp "$BUILD/penstockd" "$work/new"
mv "$work/new" "$work/penstockd"
ctl reload >/dev/null || fail "a good reload"
expect "generation after it" "$(generation)" 2

# ---- a stop that comes while the configuration is tested is not forgotten ----
load slow -p /v1/images/generations -H 'X-Mock: delay_ms=1500' -d "$image" -n 2 -c 2
in_use() { [ "$(status_number used)" = "$1" ]; }
until_true "two calls run" in_use 2
kill -HUP "$master_pid"
kill -QUIT "$master_pid"
load_ends slow
nothing_lost slow
until_true "the stop" has_ended "$master_pid"
wait "$master_pid"
expect "exit status" $? 0
echo "reload: ok"
