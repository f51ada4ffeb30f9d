#!/usr/bin/env bash
# Classes at the image gate, with four real workers: whose turn it is, shares of pictures by weight, order inside a
# class, room in the queue for each, kills, and back to the order of arrival by a reload.
# F8 G6 G11 B3 M2
# timeout: 180
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
start_source drawing
penstock_options='workers = 4
log_level = warning'
image_options='enabled = true
max_concurrent_requests = 1
max_waiting_requests = 400
overflow_mode = wait
wait_timeout_seconds = 120
class_max_waiting = 400, 400, 60'
configure_scopes <<'END'
[scope pictures]
sources = drawing
flow_class_header_max = interactive
[route all]
path = /v1/
scope = pictures
END
start_penstock
paint=/v1/images/generations
class_header() { echo "X-Penstock-Class: $1"; }

# ---- whose turn, one by one ----
ahead=0
arrives() { # arrives MODEL CLASS PICTURES: and waits, beside the test
    "$client" -s "$work/penstock.sock" -p $paint -H "$json" -H "$(class_header "$2")" -d "{\"model\":\"gpt-image-$1\",\"prompt\":\"x\",\"n\":$3}" \
        >"$work/answer.$1" 2>&1 &
    callers+=($!)
    ahead=$((ahead + 1))
    until_true "call $1 is known" known "$ahead"
}
known() { [ "$(status_number image_requests)" = "$1" ]; }
order() { # order COLUMN: models in the order of the column, of those where it is more than 0
    ledger "select group_concat(substr(model, 11), '') from (select model from waits where $1 > 0 order by $1)"
}
queue_order() {
    ctl --json queue >"$work/queue.json"
    sqlite3 :memory: "select group_concat(substr(json_extract(value, '\$.model'), 11), '') from
        json_each(cast(readfile('$work/queue.json') as text), '\$.queue.calls')"
}
done_are() { [ "$(ledger "select count(*) from waits where state = 'done'")" = "$1" ]; }
let_go() { # the first of them leaves, and its slot with it
    kill -KILL "${callers[0]}"
    wait "${callers[0]}" 2>/dev/null
    wait "${callers[@]:1}"
    callers=()
}
callers=()
source_is drawing delay_ms=60000,size=100
arrives h normal 1
source_is drawing delay_ms=50,size=100
arrives a bulk 1
arrives b bulk 1
arrives c interactive 1
arrives d normal 1
expect "F8: the queue, in the order of turns" "$(queue_order)" cadb
let_go
until_true "F8: all have come" done_are 4
expect "F8: turns" "$(order grant_seq)" hcadb
expect "F8: positions at arrival" "$(ledger "select group_concat(substr(model, 11) || position, ' ') from
    (select model, position from waits order by arrival_seq)")" "h0 a1 b2 c1 d3"
expect "F8: classes" "$(ledger "select group_concat(class, ' ') from (select class from waits order by arrival_seq)")" \
    "normal bulk bulk interactive normal"

# ---- shares ----
source_is drawing delay_ms=8,size=100
before=$(status_number image_granted)
crowd() { # crowd CLASS CLIENTS PICTURES
    load "$1" -p $paint -H "$(class_header "$1")" -c "$2" -S 100 -d "{\"model\":\"$1\",\"prompt\":\"x\",\"n\":$3}"
}
crowd bulk 28 4 # with those of dead workers that are not buried yet they still find room
crowd normal 50 2
crowd interactive 60 1
all_granted() { [ "$(status_number image_granted)" -ge "$1" ]; }
TEST_PATIENCE=90 until_true "F8: turns were given" all_granted $((before + 1500))

# ---- workers die ----
for pid in $(workers | head -n 2); do kill -KILL "$pid"; done
killed=$(status_number image_granted)
until_true "G11: turns are given on" all_granted $((killed + 100))
for class in interactive normal bulk; do
    kill -KILL "${loads[$class]}"
    wait "${loads[$class]}" 2>/dev/null
done
until_true "nothing is in use" nothing_in_use
ledger_is_whole
passed=$(status_number image_passed_over)
# Of the turns while all three had somebody waiting: 50 to let all come, and not those after the kills.
ledger "select class, sum(case class when 'bulk' then 4 when 'normal' then 2 else 1 end) from waits
    where grant_seq > $before + 50 + 5 and grant_seq <= $before + 1400 group by class order by class desc" >"$work/shares"
echo "pictures of 16, 4, 1: $(tr '\n' ' ' <"$work/shares")(passed over: $passed)"
awk -F'|' '{ got[$1] = $2; all += $2 } END { i = got["interactive"] * 21 / 16 / all; n = got["normal"] * 21 / 4 / all
    b = got["bulk"] * 21 / all; exit !(i > 0.96 && i < 1.04 && n > 0.92 && n < 1.08 && b > 0.85 && b < 1.15) }' "$work/shares" ||
    fail "B3: shares of pictures are not 16, 4 and 1 of 21"
inversions=$(ledger "select count(*) from (select grant_seq, max(grant_seq) over (partition by boot, class order by arrival_seq
    rows between unbounded preceding and 1 preceding) as earlier from waits where grant_seq > 0) where earlier > grant_seq")
[ "$inversions" -le "$passed" ] || fail "G6: $inversions grants out of order inside a class, $passed past one that did not answer"

# ---- room in the queue: bulk has 60 places, the others find theirs ----
four_workers() { [ "$(workers | wc -l)" = 4 ]; }
until_true "four workers" four_workers
source_is drawing delay_ms=60000,size=100
crowd bulk 61 1
queue_has() { ctl status --json | grep -q "\"queue\":{\"length\":$1,"; }
until_true "F8: bulk has its places" queue_has 60
call -p $paint -H "$json" -H "$(class_header bulk)" -d "$image"
expect_refusal "F8: one more of bulk" 429 penstock_image_queue_full
source_is drawing delay_ms=1,size=100
ask -p $paint -H "$json" -H "$(class_header interactive)" -d "$image" >"$work/answer" &
caller=$!
until_true "F8: there is room for an interactive one" queue_has 61
kill -KILL "${loads[bulk]}"
wait "${loads[bulk]}" 2>/dev/null
wait "$caller"
contains "F8: it is answered" "$(cat "$work/answer")" '"b64_json"'
until_true "nothing is in use" nothing_in_use

# ---- without weights: the order of arrival ----
sed -i 's/^class_max_waiting = .*/class_weights =/' "$work/penstock.conf"
generation=$(status_number generation)
ctl reload >/dev/null || fail "penstockctl reload"
newer() { [ "$(status_number generation)" -gt "$generation" ] && four_workers; }
until_true "a new generation serves alone" newer
source_is drawing delay_ms=60000,size=100
ahead=$(status_number image_requests)
finished=$(ledger "select count(*) from waits where state = 'done'")
first=$(ledger 'select max(grant_seq) from waits')
arrives w normal 1
source_is drawing delay_ms=50,size=100
arrives x bulk 1
arrives y normal 1
arrives z interactive 1
let_go
until_true "all have come" done_are $((finished + 3))
expect "G6: without weights the order is that of arrival" "$(ledger "select group_concat(substr(model, 11), '') from
    (select model from waits where grant_seq > $first order by grant_seq)")" wxyz
expect "never more than one at a time" "$(of_source drawing images_open_max)" 1
