#!/usr/bin/env bash
# Every option of worker/options_list.h stands in conf/penstock.conf and docs/penstock.conf.5, and both are
# what $BUILD/penstockd (default build/release) prints. After a change of the list:
#   tests/checks/options.sh --write
set -euo pipefail
cd "$(dirname "$0")/../.."
example=conf/penstock.conf
manual=docs/penstock.conf.5
program=${BUILD:-build/release}/penstockd
bad=0
complain() { echo "$1"; bad=1; }

keys=$(grep -oE '^OPTION\([a-z_]+, [a-z_]+' worker/options_list.h | sed 's/.*, //')
(($(wc -w <<<"$keys") > 40)) || complain "worker/options_list.h: its options cannot be found"
for key in $keys; do
    grep -qE "^;$key =" "$example" || complain "$example: there is no $key"
    grep -qxF ".It Ic $key" "$manual" || complain "$manual: there is no $key"
done

[[ -x $program ]] || { echo "there is no $program: the texts were not compared"; exit $((bad ? bad : 77)); }
printed=$(mktemp -d)
trap 'rm -rf "$printed"' EXIT
"$program" --print-example >"$printed/example"
{
    sed '/^\.\\" begin of the list$/q' "$manual"
    "$program" --print-manual
    sed -n '/^\.\\" end of the list$/,$p' "$manual"
} >"$printed/manual"
if [[ ${1-} == --write ]]; then
    cp "$printed/example" "$example"
    cp "$printed/manual" "$manual"
fi
diff -u "$example" "$printed/example" || complain "$example is not what penstockd --print-example prints"
diff -u "$manual" "$printed/manual" || complain "$manual is not what penstockd --print-manual prints"
exit $bad
