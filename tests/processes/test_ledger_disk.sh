#!/usr/bin/env bash
# The disk under the ledger is full, then the ledger is read-only: calls go on, the status page counts the failures,
# what waited is written when there is room again (L4 L5 N8). Needs to mount a tmpfs of its own.
# timeout: 90
. "$(dirname "$0")/lib.sh"
begin
mkdir "$work/disk"
mount -t tmpfs -o size=8m tmpfs "$work/disk" 2>/dev/null || { echo "skipped: mounting a tmpfs is not allowed here" && exit 77; }
mounts+=("$work/disk")
start_upstream -q -d size=500,skip_sha
penstock_options="workers = 2
log_level = warning" configure <<'EOF'
enabled = true
max_concurrent_requests = 4
overflow_mode = wait
max_waiting_requests = 60
EOF
sed -i "s|^state_directory = .*|state_directory = $work/disk|" "$work/penstock.conf"
ledger() { sqlite3 -cmd '.timeout 2000' "file:$work/disk/ledger.db?mode=ro" "$1"; }
start_penstock

calls_go_on() { # calls_go_on NAME
    load "$1" -p /v1/images/generations -H 'X-Mock: delay_ms=40' -d "$image" -c 8 -n 160 -T 20
    load "$1.chat" -p /v1/chat/completions -H 'X-Mock: delay_ms=20' -d '{"model":"m","messages":[]}' -c 4 -n 100 -T 20
    load_ends "$1" "$1.chat"
    nothing_lost "$1" "$1.chat"
    [ "$(report "$1" slowest_ms)" -lt 5000 ] || fail "$1: a call took $(report "$1" slowest_ms) ms"
}
known() {
    [ "$(ledger 'select count(*) from waits where grant_seq > 0')" = "$(status_number image_granted)" ] &&
        [ "$(ledger 'select count(*) from calls')" = "$(status_number requests)" ]
}
fails() { [ "$(status_number failures)" -gt "$failures" ]; }

calls_go_on before
until_true "rows are written" known

# ---- full ----
failures=$(status_number failures)
dd if=/dev/zero of="$work/disk/filler" bs=4k 2>/dev/null
calls_go_on full
until_true "failures are counted" fails
[ "$(status_number waits_pending)" -gt 0 ] || fail "nothing waits to be written"
contains "the log says it" "$(cat "$work/penstock.log")" 'event=ledger_failed'
contains "people can still read it" "$(ledger 'select count(*) from waits')" '^[1-9]'
big=$(printf '{"model":"gpt-image-2","prompt":"%400000s"}' x)
contains "a body that must be spooled" "$(ask -p /v1/images/generations -H 'Content-Type: application/json' -f <(echo "$big"))" \
    '"code":"penstock_spool_full"'
rm "$work/disk/filler"
ledger_is_whole
until_true "rows are written later" known

# ---- read-only, from the start of a daemon on ----
kill -QUIT "$master_pid"
wait "$master_pid"
{ mount --bind "$work/disk/ledger.db" "$work/disk/ledger.db" && mounts=("$work/disk/ledger.db" "${mounts[@]}") &&
    mount -o remount,ro,bind "$work/disk/ledger.db"; } || fail "bind mount"
start_penstock
failures=$(status_number failures)
calls_go_on read_only
until_true "failures are counted" fails
umount "$work/disk/ledger.db"
ledger_is_whole
until_true "rows are written later" known
until_true "nothing is in use" nothing_in_use
