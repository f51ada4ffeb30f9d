#!/usr/bin/env bash
# The status socket and penstockctl against a running daemon (O1, O3, O4, M11): pages, queue and slots of
# real calls, limit, reload, refusals; the monitor killed; the master killed and replaced.
set -u

build=$(realpath "${BUILD:-build/release}")
work=$(mktemp -d)
gate=status-$$
failed=0
pids=()

stop_all() {
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        kill -TERM "${pids[i]}" 2>/dev/null
        wait "${pids[i]}" 2>/dev/null
    done
    [ -n "${semaphore-}" ] && ipcrm -s "$semaphore" 2>/dev/null
    rm -rf "/dev/shm/penstock-$gate" "$work"
}
trap stop_all EXIT

complain() {
    printf 'FAILED: %s\n' "$1"
    failed=1
}
expect() { # NAME GOT PATTERN
    grep -Eq -- "$3" <<<"$2" || complain "$1: wanted /$3/, got: ${2:0:400}"
}
expect_code() { # NAME CODE COMMAND...
    local name=$1 code=$2 got
    shift 2
    "$@" >"$work/out" 2>&1
    got=$?
    [ "$got" = "$code" ] || complain "$name: wanted exit $code, got $got: $(head -c 300 "$work/out")"
}
until_true() { # NAME COMMAND...: wait for a condition, at most 15 s
    local name=$1 end=$((SECONDS + 15))
    shift
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS >= end)); then
            complain "$name never came"
            return 1
        fi
        sleep 0.05
    done
}
ctl() { "$build/penstockctl" -s "unix:$work/status.sock" "$@" 2>&1; }
says() { # PATTERN COMMAND...: for until_true
    local pattern=$1
    shift
    "$@" | grep -Eq -- "$pattern"
}
generation() { ctl status | sed -n 's/^generation: *//p'; }
monitor_pid() { ctl status | awk '$2 == "monitor" { print $1; exit }'; }
monitors() { ctl status | awk '$2 == "monitor"' | wc -l; }
one_monitor() { [ "$(monitors)" = 1 ]; }
generation_past() { local now; now=$(generation); [ -n "$now" ] && ((now > $1)); }
configure() { # LIMIT
    cat >"$work/penstock.conf" <<EOF
[penstock]
listen = unix:$work/penstock.sock
status_listen = unix:$work/status.sock
state_directory = $work
runtime_directory = $work
workers = 2
[image_concurrency]
enabled = true
gate = $gate
max_concurrent_requests = $1
overflow_mode = wait
max_waiting_requests = 10
[source upstream]
base_url = $upstream
[route all]
path = /v1/
source = upstream
EOF
}
start_daemon() {
    "$build/penstockd" -c "$work/penstock.conf" >>"$work/penstock.log" 2>&1 &
    pids+=($!)
    daemon=$!
}

"$build/tools/simulated_upstream" -p 0 -d delay_ms=3000,size=1000 >"$work/upstream.log" 2>&1 &
pids+=($!)
until_true upstream grep -q '^port ' "$work/upstream.log" || exit 1
upstream=http://127.0.0.1:$(awk '/^port / { print $2; exit }' "$work/upstream.log")
configure 2
start_daemon
until_true penstock ctl ping || { cat "$work/penstock.log"; exit 1; }
semaphore=$(ctl status --json | sed -n 's/.*"semaphore_id":\([0-9]*\).*/\1/p')

# ---- pages ----
until_true 'both workers' says '"role":"worker".*"role":"worker"' ctl status --json
expect ping "$(ctl ping)" '^pong$'
expect status "$(ctl status)" '^image slots: +0 of 2 in use, 2 free$'
expect queue "$(ctl queue)" '^waiting calls: 0$'
expect slots "$(ctl --json slots)" '^\{.*"slots":\{"limit":2,"used":0,.*"calls":\[\]\}\}$'
expect metrics "$(ctl metrics)" '^penstock_image_slots\{state="limit"\} 2$'
expect 'build info' "$(ctl metrics)" '^penstock_build_info\{version="[0-9.]+"\} 1$'

# ---- wrong usage and refusals ----
expect_code 'no command' 2 "$build/penstockctl"
expect_code 'unknown command' 2 "$build/penstockctl" nothing
expect_code 'limit without number' 2 "$build/penstockctl" limit
expect_code 'limit of words' 2 "$build/penstockctl" -s "$work/status.sock" limit eight
for wrong in -1 -15 1.5 '' 99999999999999999999; do
    expect_code "limit '$wrong'" 2 "$build/penstockctl" -s "$work/status.sock" limit "$wrong" --json
    expect "limit '$wrong' says why" "$(cat "$work/out")" \
        "^penstockctl: limit: \"$wrong\" is no number of image calls; write a whole number from 0 \(no limit\) to 2048\$"
done
for wrong in -5 0 31d soon; do
    expect_code "last '$wrong'" 2 "$build/penstockctl" diagnose --last "$wrong"
    expect "last '$wrong' says why" "$(cat "$work/out")" \
        "^penstockctl: --last: \"$wrong\" is no time to look back; write one up to 30d, such as 30s, 10m or 2h\$"
done
expect_code 'an option that there is not' 2 "$build/penstockctl" status --jsonn
expect 'says which there are' "$(cat "$work/out")" '^penstockctl: "--jsonn" is no option; there are -c FILE, '
expect_code 'an option without its value' 2 "$build/penstockctl" status -s
expect 'says that it needs one' "$(cat "$work/out")" '^penstockctl: "-s" needs a value behind it; '
expect_code 'options behind the command' 0 "$build/penstockctl" status --json -s "$work/status.sock"
expect_code 'no option behind --' 2 "$build/penstockctl" -s "$work/status.sock" limit -- --json
expect_code 'limit too high' 1 "$build/penstockctl" -s "$work/status.sock" limit 2049
expect_code 'no daemon there' 1 "$build/penstockctl" -s "unix:$work/nobody.sock" ping
expect 'says what to do' "$(cat "$work/out")" 'Is penstockd running'
expect_code 'a path is no address' 2 "$build/penstockctl" -s run/status.sock ping
expect 'says how a path is written' "$(cat "$work/out")" \
    '^penstockctl: -s: "run/status.sock" is no address of a socket; write -s unix:run/status.sock$'
for wrong in '' 127.0.0.1 127.0.0.1:70000 localhost:90 unix:; do
    expect_code "address '$wrong'" 2 "$build/penstockctl" -s "$wrong" ping
    expect "address '$wrong' says why" "$(cat "$work/out")" \
        "^penstockctl: -s: \"$wrong\" is no address of a socket; write -s unix:PATH, .* or -s ADDRESS:PORT, "
done
expect_code 'relative path, nobody there' 1 env -C "$work" "$build/penstockctl" -s unix:nobody.sock ping
expect 'says what was tried' "$(cat "$work/out")" \
    "^The path does not begin with /, so $(cd "$work" && pwd -P)/nobody.sock was tried; write -s unix:/PATH"
expect_code 'socket named by the configuration' 0 "$build/penstockctl" -c "$work/penstock.conf" ping
expect_code 'configuration that is not there' 1 "$build/penstockctl" -c "$work/none.conf" ping

# ---- real calls, through a web server ----
if command -v caddy >/dev/null; then
    cat >"$work/Caddyfile" <<EOF
{
	admin off
	auto_https off
	storage file_system $work/caddy
}
http:// {
	bind unix/$work/caddy.sock
	handle /v1/* {
		reverse_proxy unix/$work/penstock.sock {
			transport fastcgi
		}
	}
	reverse_proxy unix/$work/status.sock {
		transport fastcgi
	}
}
EOF
    XDG_DATA_HOME=$work XDG_CONFIG_HOME=$work caddy run --config "$work/Caddyfile" --adapter caddyfile >"$work/caddy.log" 2>&1 &
    pids+=($!)
    url=http://penstock.test
    web() { curl -s --unix-socket "$work/caddy.sock" "$@"; } # a socket of our own: nobody else can hold its name
    until_true caddy web -f "$url/penstock/ping"
    for _ in 1 2 3; do
        web -o /dev/null -H 'Content-Type: application/json' -d '{"model":"gpt-image-2","prompt":"a weir"}' \
            "$url/v1/images/generations" &
        calls+=($!)
    done
    until_true 'a waiting call' says '^waiting calls: 1$' ctl queue
    expect 'who waits' "$(ctl queue)" '^ +1 +[0-9.]+  slot +[0-9]+  .* gpt-image-2 '
    expect 'who holds' "$(ctl slots)" '^slots held by calls: 2$'
    expect 'the same as JSON' "$(web "$url/penstock/status?json")" '"used":2,"free":0,.*"queue":\{"length":1,'
    expect 'the same for browsers' "$(web "$url/penstock/status?html")" '<div class="big">2 / 2</div>'
    expect 'head of the page' "$(web -I "$url/penstock/status?html")" 'Content-Security-Policy: default-src'
    expect 'OpenMetrics by Accept' "$(web -H 'Accept: application/openmetrics-text' "$url/penstock/metrics")" '^# EOF$'
    expect 'no such page' "$(web "$url/penstock/nothing")" '"code":"penstock_no_page"'
    expect 'a client may not control' "$(web -X POST -H 'PENSTOCK_CONTROL: 1' -H 'PENSTOCK-CONTROL: 1' "$url/penstock/control?limit=9")" \
        'penstock_forbidden'
    expect 'limit is untouched' "$(ctl status)" 'of 2 in use'

    # M11: up wakes the waiter at once
    expect 'limit up' "$(ctl limit 3)" '^limit: 3 \(was 2\), until the next reload$'
    until_true 'the third slot' says '^slots held by calls: 3$' ctl slots
    wait "${calls[@]}"
    until_true 'all given back' says '^image slots: +0 of 3 in use' ctl status
fi

# ---- limit and reload (M11) ----
ctl limit 7 >/dev/null
expect 'limit set' "$(ctl status)" '0 of 7 in use'
before=$(generation)
configure 4
expect reload "$(ctl reload)" '^reloaded: generation [0-9]+$'
generation_past "$before" || complain "generation $(generation) is not past $before"
expect 'the file wins at a reload' "$(ctl status)" '0 of 4 in use'
until_true 'old monitor gone' one_monitor

# ---- the monitor is killed ----
old=$(monitor_pid)
kill -9 "$old"
until_true 'a new monitor' ctl ping
until_true 'one monitor' one_monitor
[ "$(monitor_pid)" != "$old" ] || complain 'the dead monitor is still shown'

# ---- the master is killed: the monitor answers on, a new master takes over ----
before=$(generation)
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
expect 'monitor of a dead master' "$(ctl ping)" '^pong$'
expect_code 'reload without a master' 1 "$build/penstockctl" -s "$work/status.sock" reload
expect 'says why' "$(cat "$work/out")" 'master process has ended'
start_daemon
until_true 'a new generation' generation_past "$before"
until_true 'the old monitor followed' one_monitor
expect 'limit as configured' "$(ctl status)" 'of 4 in use'

# ---- the end ----
kill -QUIT "$daemon"
wait "$daemon"
code=$?
[ "$code" = 0 ] || complain "graceful stop ended with $code"
expect_code 'after the end' 1 "$build/penstockctl" -s "$work/status.sock" ping

if [ "$failed" != 0 ]; then
    tail -n 20 "$work/penstock.log"
    exit 1
fi
echo 'status socket and penstockctl: ok'
