#!/usr/bin/env bash
# timeout: 60
# Work that goes on after its call was answered keeps its slot: until a poll shows its end, or the lease's.
# G13 G14 M1 T51
# shellcheck source=tests/processes/lib_faults.sh
. "$(dirname "$0")/lib_faults.sh"
begin
start_upstream -d size=400
penstock_options='workers = 2'
configure <<'EOF'
enabled = true
max_concurrent_requests = 2
background_lease_seconds = 30

[route dashscope]
path = /api/v1/
source = up
EOF
start_penstock
responses=/v1/responses tasks=/api/v1/services/aigc/text2image/image-synthesis
background='{"model":"gpt-5","background":true,"tools":[{"type":"image_generation"}]}'
task='{"model":"wan2.2-t2i-flash","input":{"prompt":"a weir"},"parameters":{"n":1}}'

used_is() { [ "$(status_number used)" = "$1" ]; }
leased_is() { [ "$(status_number leased)" = "$1" ]; }
field() { sqlite3 :memory: "select json_extract(cast(readfile('$work/body') as text), '\$.$1')"; }
begin_response() { # begin_response JOB_MS: its id in $job
    call -p $responses -H "$json" -H "X-Mock: job_ms=$1" -d "$background"
    expect "a background response" "$code $status $(field status)" "0 200 queued"
    job=$(field id)
}
begin_task() { # begin_task MOCK: its id in $job
    call -p $tasks -H "$json" -H 'X-DashScope-Async: enable' -H "X-Mock: $1" -d "$task"
    expect "a task" "$code $status $(field output.task_status)" "0 200 PENDING"
    job=$(field output.task_id)
}
shows() { # shows PATH FIELD WORD: a poll
    call -p "$1"
    [ "$(field "$2")" = "$3" ]
}

# ---- both slots leased: another image is refused, all else goes on ----
begin_response 100000
first=$job
expect "G13: the slot is kept" "$(status_number used) $(status_number leased)" "1 1"
expect "the call itself is over" "$(row outcome)" ok
begin_task job_ms=100000
second=$job
expect "G13: a task keeps its slot" "$(status_number used)" 2
call -p /v1/images/generations -H "$json" -d "$image"
expect_refusal "G5: leases count" 429 penstock_image_limit
contains "G5: leases count" "$(body)" '2 of 2'
call -p $responses -H "$json" -d "$background"
expect_refusal "G5: for background work, too" 429 penstock_image_limit
call -p /v1/chat/completions -H "$json" -d '{"model":"m","messages":[]}'
expect "chat goes on" "$code $status" "0 200"
# polls that show work in progress change nothing, however many
for _ in 1 2 3; do
    shows "$responses/$first" status in_progress || shows "$responses/$first" status queued || fail "poll: $(body)"
    call -p "/api/v1/tasks/$second"
    contains "poll of a task" "$(field output.task_status)" 'PENDING|RUNNING'
done
call -p "$responses/resp_unknown"
call -p "/api/v1/tasks/unknown"
expect "polls of what goes on, or is unknown" "$(status_number used)" 2
# a worker's death changes nothing either: the work is the upstream's
for pid in $(workers); do kill -9 "$pid"; done
new_workers() { [ "$(workers | wc -l)" = 2 ]; }
until_true "new workers" new_workers
expect "M1: leases outlive their workers" "$(status_number used)" 2
# a cancelled response is at its end
call -X POST -p "$responses/$first/cancel"
expect "cancelled" "$code $status $(field status)" "0 200 cancelled"
expect "G13: a cancelled response gives its slot back" "$(status_number used)" 1
all_well_but_one() {
    call -p /v1/images/generations -H "$json" -d "$image"
    expect "the free slot can be had" "$code $status" "0 200"
}
all_well_but_one
call -X POST -p "$responses/$first/cancel"
expect "an end that is shown twice" "$(status_number used)" 1

# ---- work that ends by itself ----
begin_response 300
expect "two again" "$(status_number used)" 2
until_true "the response is completed" shows "$responses/$job" status completed
expect "G13: a completed response" "$(status_number used)" 1
contains "what was drawn" "$(body)" '"result":"[A-Za-z0-9]'
call -p "$responses/$job"
begin_task job_ms=300,n=2,job_fail=1
until_true "the task has succeeded" shows "/api/v1/tasks/$job" output.task_status SUCCEEDED
expect "G13: a task that succeeded" "$(status_number used)" 1
begin_task job_ms=300,job_fail=1
until_true "the task has failed" shows "/api/v1/tasks/$job" output.task_status FAILED
expect "G13: a task that failed" "$(status_number used)" 1
[ "$(upstream_stat images_drawn_max)" -le 2 ] || fail "N1: the upstream drew $(upstream_stat images_drawn_max) at once"

# ---- G14: pictures are booked once, on the call that created the work, however often it is asked about ----
begin_response 1
for _ in 1 2 3; do shows "$responses/$job" status completed || true; done
until_true "the finished response is shown" shows "$responses/$job" status completed
booked_is() { [ "$(ledger "select images from calls where upstream_id = '$job'")" = "$1" ]; }
until_true "G14: the creating call has the picture" booked_is 1
expect "G14: polls have none" "$(ledger "select coalesce(sum(images), 0) from calls where endpoint = 'responses/{id}'")" 0

# ---- background work that never begins keeps nothing ----
for mock in status=429 status=500 close=read reset=100 garbage; do
    call -p $responses -H "$json" -H "X-Mock: $mock" -d "$background"
    until_true "nothing is kept after $mock" used_is 1
done
# a stream shows its end itself
call -p $responses -H "$json" -d "${background%\}},\"stream\":true}"
contains "a background stream" "$(body)" 'response.completed'
expect "G13: a background stream" "$(status_number used)" 1

# ---- T51: the client leaves before the answer: the upstream's is awaited all the same ----
upstream_reset
ask -p $responses -H "$json" -H 'X-Mock: delay_ms=500,job_ms=100000' -d "$background" -l 100 -m 1 >/dev/null
until_true "T51: the lease is taken" leased_is 2
expect "T51: nothing was broken off" "$(upstream_stat aborted)" 0
is_booked() { [ "$(ledger "select count(*) from calls where outcome = 'client_gone'")" = 1 ]; }
until_true "T51: it is booked" is_booked

# ---- a lease ends by itself; who waits is rung ----
sed -i 's/^background_lease_seconds = 30/background_lease_seconds = 1/; s/^enabled = true/enabled = true\noverflow_mode = wait/' "$work/penstock.conf"
generation=$(status_number generation)
ctl reload >/dev/null
newer() { [ "$(status_number generation)" -gt "$generation" ] && [ "$(workers | wc -l)" -eq 2 ]; }
until_true "a new generation serves alone" newer
expect "M1: leases outlive a reload" "$(status_number leased)" 2
ctl limit 3 >/dev/null
begin_response 100000
expect "three" "$(status_number used)" 3
begun_ms=$(date +%s%3N)
call -p /v1/images/generations -H "$json" -d "$image"
waited_ms=$(($(date +%s%3N) - begun_ms))
expect "G13: a waiter gets the slot of an expired lease" "$code $status" "0 200"
if [ "$waited_ms" -lt 500 ] || [ "$waited_ms" -gt 3000 ]; then fail "G13: waited $waited_ms ms for a lease of 1 s"; fi
until_true "the others go on" leased_is 2
expect "integrity" "$(ledger 'pragma integrity_check')" ok
