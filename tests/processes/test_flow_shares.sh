#!/usr/bin/env bash
# timeout: 240
# Classes of flow control with four workers: first come, first served inside a class, also past waiters that died;
# shares of the cost by weight within 3 %; bulk is never starved; an interactive call waits no longer than
# docs/why/shares.md says.
#   SECONDS_LONG=120    so long for the last of these, and as long for shares while calls come and go (make flow-storm)
# F8 B3
# shellcheck source=tests/processes/lib_calls.sh
. "$(dirname "$0")/lib_calls.sh"
begin
factor=${TEST_TIME_FACTOR:-1}
seconds=${SECONDS_LONG:-15}
rpm=6000 tpm=600000
log_sends=yes
start_source single 'rpm = 10000000
max_concurrency = 1'
start_source shared 'rpm = 10000000
max_concurrency = 4'
start_source short "rpm = $rpm
tpm = $tpm"
penstock_options='workers = 1
threads = 1000
log_level = warning'
for name in "${names[@]}"; do
    flow=rate
    [ "$name" != short ] || flow='shaping;flow_warmup_s=0'
    routed_scope "$name" "$name" \
        "flow=$flow;flow_class_header_max=interactive;flow_max_wait_s=600,600,600;flow_max_waiting=700"
done >"$work/scopes"
configure_scopes <"$work/scopes"
start_penstock
classes=(interactive normal bulk)
flow() { # flow GROUP PATH: of the status page's JSON
    ctl flows --json >"$work/flows.json"
    sqlite3 :memory: "select json_extract(value, '\$.$2') from json_each(cast(readfile('$work/flows.json') as text), '\$.flows')
        where json_extract(value, '\$.quota_group') = '$1'"
}
wait_in() { [ "$(flow "$1" "waiting.$2")" = "$3" ]; }
runs_in() { [ "$(flow "$1" in_flight)" = "$2" ]; }
words() { awk -v bytes="$1" 'BEGIN { while (length(text) < bytes) text = text "The keeper of the weir opened a gate. "
    print substr(text, 1, bytes) }'; }
document() { # document NAME BYTES
    printf '{"model":"m","messages":[{"role":"user","content":"%s"}]}' "$(words "$2")" >"$work/$1.json"
}
hold() { # hold SCOPE N: so many calls run until release
    load "hold_$1" -p "/$1$chat_path" -d '{"model":"m","messages":[]}' -H 'X-Mock: delay_ms=600000' -c "$2" -n "$2" -T 700
    until_true "$1 is held" runs_in "$1" "$2"
}
release() { # its clients leave
    kill -KILL "${loads[hold_$1]}" 2>/dev/null
    wait "${loads[hold_$1]}" 2>/dev/null
}
sent_in_order() { sort -n "$work/$1.sent" | awk '$3 == 200 && $7 != "-" { print $7 }'; }

# ---- first come, first served: one of each class comes when those before are known to wait. The first half waits in
# a worker that a reload replaces by four others, and that dies ----
load first -p "/single$chat_path" -d '{"model":"m","messages":[]}' -n 3
load_ends first
hold single 1
document small 1200
rounds=14
come() { # come FIRST LAST: rounds
    local i class
    for ((i = $1; i <= $2; i++)); do
        for class in "${classes[@]}"; do
            load "$class.$i" -p "/single$chat_path" -f "$work/small.json" -H "X-Penstock-Class: $class" -H "X-Call: $class-$i" -T 120
        done
        for class in "${classes[@]}"; do until_true "$class $i waits" wait_in single "$class" "$i"; done
    done
}
come 1 $((rounds / 2))
victim=$(workers)
sed -i 's/^workers = 1$/workers = 4/' "$work/penstock.conf"
ctl reload >/dev/null || fail "a reload"
others() { workers | grep -vx "$victim"; }
others_are() { [ "$(others | wc -l)" = "$1" ]; }
until_true "four other workers" others_are 4
come $((rounds / 2 + 1)) $rounds
kill -KILL "$victim"
died() { [ "$(flow single buried)" -ge 1 ]; }
until_true "who died is buried" died
release single # where it was held before, died
is_empty() { runs_in single 0 && wait_in single interactive 0 && wait_in single normal 0 && wait_in single bulk 0; }
until_true "all are served" is_empty
left=$(sent_in_order single | wc -l)
[ "$left" -ge 10 ] || fail "only $left of $((3 * rounds)) outlived the worker that died"
for class in "${classes[@]}"; do
    expect "B3: $class calls out of order" "$(sent_in_order single | sed -n "s/^$class-//p" | awk '$1 < last { n++ } { last = $1 } END { print n + 0 }')" 0
done
echo "first come, first served: $left of $((3 * rounds)) calls outlived a worker, 0 out of order"

# ---- shares of the cost, all waiting from the start: no matter how fast the machine is ----
sizes=(6 4 2) # hundreds of tokens in
counts=(490 170 64)
ask_shared() { # ask_shared NAME CLASS_INDEX N
    load "$1" -p "/shared$chat_path" -f "$work/shared.$2.json" -H "X-Penstock-Class: ${classes[$2]}" -u -e "$2" \
        -H "X-Mock: in_tokens=$((sizes[$2] * 100)),out_tokens=100,delay_ms=2" -c "$3" -n "$3" -T 240
}
for i in 0 1 2; do # estimates are right from here on
    document "shared.$i" $((sizes[i] * 400))
    ask_shared "learn.$i" "$i" 12
    load_ends "learn.$i"
done
learned=$(sent_in_order shared | wc -l)
hold shared 4
for i in 0 1 2; do ask_shared "shared.$i" "$i" "${counts[i]}"; done
all_wait() { wait_in shared interactive "${counts[0]}" && wait_in shared normal "${counts[1]}" && wait_in shared bulk "${counts[2]}"; }
until_true "all wait" all_wait
release shared
TEST_PATIENCE=60 until_true "all are served" runs_in shared 0
for i in 0 1 2; do
    load_ends "shared.$i"
    nothing_lost "shared.$i"
done
# Cost: tokens, and 100 a request. From the first bulk call to the last before a class has none left that waits.
shares_are_kept() { # shares_are_kept "COST COST COST" [how many of each there are] < X-Calls in order
    awk -v costs="$1" -v counts="${2:-0 0 0}" '
        BEGIN { split(costs, cost); split(counts, count); split("16 4 1", weight); split("interactive normal bulk", name) }
        {
            class = substr($1, 1, 1) + 1
            if (++seen[class] == count[class]) exit
            run[class] += cost[class]
            if (class != 3) next
            gap = run[1] + run[2] + run[3]
            if (seen[3] > 1 && gap > longest) longest = gap
            for (c = 1; c <= 3; c++) { if (seen[3] > 1) { got[c] += run[c]; all += run[c] } run[c] = 0 }
        }
        END {
            for (c = 1; c <= 3; c++) {
                error = got[c] / all * 21 / weight[c] - 1
                printf "share of %s: %d of %d, %+.2f %% off\n", name[c], got[c], all, 100 * error
                if (error > 0.03 || error < -0.03) bad = 1
            }
            # Four run at once: the upstream may see them in another order.
            most = 21 * cost[3] + cost[1] + cost[2] + 4 * cost[1]
            printf "from one bulk call to the next, of %d: at most %d of cost, %d may be\n", seen[3], longest, most
            exit bad || longest > most || seen[3] < 45
        }'
}
sent_in_order shared | tail -n +$((learned + 1)) | shares_are_kept '800 600 400' "${counts[*]}" || fail "B3: shares"

# ---- how long interactive calls wait where tokens are short ----
in_interactive=200 in_normal=1500 in_bulk=4000 out=100
for class in "${classes[@]}"; do
    in=in_$class
    document "short.$class" $((${!in} * 4))
done
ask_short() { # ask_short NAME CLASS [options of fcgi_client]
    local name=$1 class=$2 in=in_$2
    shift 2
    load "$name" -p "/short$chat_path" -f "$work/short.$class.json" -H "X-Penstock-Class: $class" \
        -H "X-Mock: in_tokens=${!in},out_tokens=$out,delay_ms=20" -T 700 "$@"
}
for class in "${classes[@]}"; do # estimates are right from here on
    ask_short "learn.$class" "$class" -c 1 -n 12 -R 20
    load_ends "learn.$class"
done
ask_short backlog.normal normal -c 12 -n 100000
ask_short backlog.bulk bulk -c 12 -n 100000
many_wait() { [ "$(flow short waiting.normal)" -ge 8 ] && [ "$(flow short waiting.bulk)" -ge 8 ]; }
until_true "others wait" many_wait
bulk_before=$(flow short granted.bulk)
normal_before=$(flow short granted.normal)
from=$(ledger 'select coalesce(max(id), 0) from calls')
begun=$SECONDS
for probe in '1 -R 2' 1 3; do # now and then, one after another, three at once
    clients=${probe%% *}
    # shellcheck disable=SC2086
    ask_short "probe" interactive -c $probe -S $((seconds / 3))
    load_ends probe
    nothing_lost probe
    written() { [ "$(status_number calls_pending)" = 0 ]; }
    until_true "the ledger" written
    # Whose input is small are the interactive ones.
    seen=$(ledger "select count(*) || ' ' || cast(avg(queue_ms) as integer) || ' ' || max(queue_ms) from calls
        where id > $from and scope = 'short' and status = 200 and tokens_in = $in_interactive")
    from=$(ledger 'select max(id) from calls')
    # docs/why/shares.md, with a tenth for wrong estimates, and of the hand-over what a busy machine takes.
    bound=$(awk -v others=$((clients - 1)) -v own=$((in_interactive + out + 100)) -v l=$((in_normal + out + 100)) \
        -v m=$((in_bulk + out + 100)) -v tpm=$tpm -v rpm=$rpm -v hand_over_ms=$((100 * factor)) 'BEGIN {
            a = others * own; calls = others + 5 / 16 * (others + 1) + 2; debt = m - tpm / 40; if (debt < 0) debt = 0
            tokens = 1.1 * (a + 5 / 16 * (own + a) + l + m + own + debt)
            print int(1000 * (tokens / (tpm * 29 / 30 / 60) + (calls + 1) / (rpm * 29 / 30 / 60)) + (calls + 1) * hand_over_ms) }')
    read -r count mean most <<<"$seen"
    echo "interactive, -c $probe: $count calls waited $mean ms on average, at most $most ms; $bound ms may be"
    [ "$count" -ge 5 ] || fail "B3: only $count interactive calls"
    [ "$most" -le "$bound" ] || fail "B3: an interactive call waited $most ms, $bound may be"
done
bulk=$(($(flow short granted.bulk) - bulk_before))
normal=$(($(flow short granted.normal) - normal_before))
lasted=$((SECONDS - begun))
bulk_least=$(awk -v s=$lasted -v tpm=$tpm -v c=$((in_bulk + out + 100)) -v l=$((in_normal + in_interactive + 2 * (out + 100))) \
    'BEGIN { print int(s * tpm * 29 / 30 / 60 / (1.1 * (21 * c + l))) }')
echo "meanwhile, in $lasted s: $normal normal and $bulk bulk calls; $bulk_least of bulk must be"
[ "$bulk_least" -ge 1 ] || fail "too short to tell whether bulk is starved"
[ "$bulk" -ge "$bulk_least" ] || fail "B3: bulk is starved"
kill -KILL "${loads[backlog.normal]}" "${loads[backlog.bulk]}"
idle() { runs_in short 0 && wait_in short bulk 0 && wait_in short normal 0 && wait_in short interactive 0; }
until_true "nothing is held" idle

# ---- the same shares while calls come and go, tokens are short, and two minutes are enough to tell ----
if [ "$seconds" -ge 100 ]; then
    in_interactive=300 in_normal=500 in_bulk=700
    for i in 0 1 2; do
        in=in_${classes[i]}
        document "short.${classes[i]}" $((${!in} * 4))
    done
    for i in 0 1 2; do ask_short "relearn.$i" "${classes[i]}" -n 12 -R 20; load_ends "relearn.$i"; done
    for i in 0 1 2; do ask_short "live.$i" "${classes[i]}" -c 16 -S "$seconds" -u -e "$i"; done
    load_ends live.0
    # Until then all had some that waited.
    sent_in_order short | head -n -60 | shares_are_kept '500 700 900' || fail "B3: shares where tokens are short"
    load_ends live.1 live.2
fi
until_true "nothing is held" idle
until_true "nothing of any source is taken" sources_are_idle
ledger_is_whole
