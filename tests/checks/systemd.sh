#!/usr/bin/env bash
# O9: systemd-analyze verify prints nothing about the units (its exit status is 0 even for unknown keys),
# and the exposure score is at most 2.0. The copy that is looked at starts the program built here.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
program=$PWD/${BUILD:-build/release}/penstockd
[[ -x $program ]] || program=/bin/true
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
for unit in systemd/*.service systemd/*.socket; do
    sed "s|/usr/sbin/penstockd|$program|" "$unit" >"$copy/${unit##*/}"
done
bad=0
said=$(systemd-analyze verify --man=no "$copy"/* 2>&1)
[[ -z $said ]] || { echo "$said"; bad=1; }
score=$(systemd-analyze security --offline=true --no-pager "$copy/penstock.service" |
    sed -nE 's/.*Overall exposure level .*: ([0-9.]+) .*/\1/p')
awk -v score="${score:-10}" 'BEGIN { exit !(score <= 2.0) }' || { echo "exposure ${score:-unknown} > 2.0"; bad=1; }
exit $bad
