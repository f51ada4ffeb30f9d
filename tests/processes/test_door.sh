#!/usr/bin/env bash
# Connections that say nothing keep no other waiting: who takes one leaves the door first.
# N7
. "$(dirname "$0")/lib.sh"
begin
penstock_options='workers = 2
threads = 64'
start_upstream
configure </dev/null
start_penstock

# More than there are doormen in all workers; each is waited for up to ten seconds.
answer=$(ask -q 20 -T 5 -p /v1/models)
expect "exit status of the one who speaks" $? 0
contains "its answer" "$answer" '"object":"list"'
