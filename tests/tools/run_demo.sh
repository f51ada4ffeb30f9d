#!/bin/bash
# run_demo.sh - `make run`: Caddy + Penstock + a simulated upstream on loopback, a few image calls over the
# limit so that something waits, then stays up until interrupted. BUILD names the build folder.
# PENSTOCK_UPSTREAM=https://... uses a real upstream, PENSTOCK_DEMO_PORT another port than 8080;
# PENSTOCK_DEMO_ONCE=1 ends after the demonstration.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${BUILD:-build/release}")
port=${PENSTOCK_DEMO_PORT:-8080}
home=$(mktemp -d "${TMPDIR:-/tmp}/penstock-demo.XXXXXX")
pids=()
semaphore=

stop() {
    trap - EXIT INT TERM
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        kill -TERM "${pids[i]}" 2>/dev/null || true
        wait "${pids[i]}" 2>/dev/null || true
    done
    # The demonstration's own gate: its shared memory and semaphore go with it.
    [ -n "$semaphore" ] && ipcrm -s "$semaphore" 2>/dev/null
    rm -f "/dev/shm/penstock-demo-$$"
    rm -rf "$home"
    [ -z "${2:-}" ] || echo "$2"
    exit "${1:-0}"
}
trap 'stop 0 "Stopped. Nothing is left running, and $home is gone."' INT TERM
trap 'stop $?' EXIT

fail() {
    echo "make run: $1" >&2
    [ -n "${2:-}" ] && tail -n 20 "$2" >&2
    exit 1
}

wait_for() { # wait_for WHAT COMMAND...
    local what=$1
    shift
    for _ in $(seq 100); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "$what did not come up" "$home/$what.log"
}

if (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    fail "port $port is in use; another one: PENSTOCK_DEMO_PORT=$((port + 1)) make run"
fi

upstream=${PENSTOCK_UPSTREAM:-}
key=
if [ -z "$upstream" ]; then
    "$build/tools/simulated_upstream" -p 0 -d delay_ms=3000,chunk_ms=200,size=120 >"$home/upstream.log" 2>&1 &
    pids+=($!)
    wait_for upstream grep -q '^port ' "$home/upstream.log"
    upstream=http://127.0.0.1:$(awk '/^port /{print $2; exit}' "$home/upstream.log")
else
    # shellcheck disable=SC2016  # whoever types the command has the variable
    key=' -H "Authorization: Bearer $OPENAI_API_KEY"'
fi

cat >"$home/penstock.conf" <<EOF
[penstock]
listen = unix:$home/penstock.sock
status_listen = unix:$home/status.sock
listen_mode = 0666
state_directory = $home
runtime_directory = $home

[image_concurrency]
enabled = true
gate = demo-$$
max_concurrent_requests = 2
overflow_mode = wait

[source upstream]
base_url = $upstream

[route all]
path = /v1/
source = upstream
EOF
"$build/penstockd" -t -c "$home/penstock.conf" 2>"$home/penstock.log" || fail "the configuration is wrong" "$home/penstock.log"
"$build/penstockd" -c "$home/penstock.conf" >>"$home/penstock.log" 2>&1 &
pids+=($!)
wait_for penstock "$build/penstockctl" -s "$home/status.sock" ping
semaphore=$("$build/penstockctl" -s "$home/status.sock" status --json | sed -n 's/.*"semaphore_id": *\([0-9]*\).*/\1/p' | head -n 1)

cat >"$home/Caddyfile" <<EOF
{
	admin off
	auto_https off
	storage file_system $home/caddy
}
http://127.0.0.1:$port, http://localhost:$port {
	handle /v1/* {
		reverse_proxy unix/$home/penstock.sock {
			transport fastcgi
		}
	}
	handle /penstock/* {
		reverse_proxy unix/$home/status.sock {
			transport fastcgi
		}
	}
	redir / /penstock/status?html
}
EOF
XDG_DATA_HOME=$home XDG_CONFIG_HOME=$home caddy run --config "$home/Caddyfile" --adapter caddyfile >"$home/caddy.log" 2>&1 &
pids+=($!)
wait_for caddy curl -fs "http://127.0.0.1:$port/penstock/ping"

if [ -z "${PENSTOCK_UPSTREAM:-}" ]; then
    echo "Five image calls at once, two slots: three wait."
    calls=()
    for n in 1 2 3 4 5; do
        curl -s -o /dev/null -w "call $n: %{http_code} after %{time_total} s\n" -H 'Content-Type: application/json' \
            -d '{"model":"gpt-image-2","prompt":"a weir"}' "http://127.0.0.1:$port/v1/images/generations" &
        calls+=($!)
    done
    queue_is() { [ "$(sqlite3 "file:$home/ledger.db?mode=ro" 'select count(*) from show_queue')" = "$1" ]; }
    wait_for penstock queue_is 3
    columns='position, waited_ms, model, endpoint, call_id, pid' # all of them: 190 characters
    printf "\n\$ sqlite3 -box .../ledger.db 'select %s from show_queue'\n" "$columns"
    sqlite3 -box "$home/ledger.db" "select $columns from show_queue"
    printf '\n$ penstockctl slots\n'
    "$build/penstockctl" -s "$home/status.sock" slots
    echo
    wait "${calls[@]}"
fi

cat <<EOF

Penstock serves at http://127.0.0.1:$port/v1/ (upstream: $upstream). Try, in another terminal:

  curl http://127.0.0.1:$port/v1/images/generations$key -H 'Content-Type: application/json' -d '{"model":"gpt-image-2","prompt":"a weir"}' | head -c 400
  curl -N http://127.0.0.1:$port/v1/chat/completions$key -H 'Content-Type: application/json' -d '{"model":"gpt-5","stream":true,"messages":[{"role":"user","content":"Hello"}]}'
  sqlite3 -box $home/ledger.db 'select * from show_queue'
  sqlite3 -box $home/ledger.db 'select * from show_stats'
  $build/penstockctl -s $home/status.sock status
  curl http://127.0.0.1:$port/penstock/status        (in a browser: http://127.0.0.1:$port/)

The limit is 2, so three of the first at once make a queue. Configuration and logs are in $home/.
Interrupt (Ctrl-C) to stop everything.
EOF
[ -n "${PENSTOCK_DEMO_ONCE:-}" ] && exit 0
wait
