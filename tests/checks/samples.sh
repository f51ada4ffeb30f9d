#!/usr/bin/env bash
# Whole configurations in the documentation are accepted: `penstockd -t` has nothing to say about the EXAMPLES of
# docs/penstock.conf.5 and about each block of docs/*.md that has a [source NAME]. Keys that they name are made up.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$PWD/${BUILD:-build/release}/penstockd
[[ -x $program ]] || { echo "there is no $program"; exit 77; }
samples=$(mktemp -d)
trap 'rm -rf "$samples"' EXIT
export CREDENTIALS_DIRECTORY=$samples/keys
mkdir "$CREDENTIALS_DIRECTORY"
bad=0
complain() { echo "$1"; bad=1; }

# Each block becomes a file PAGE.N.
for page in docs/*.md; do
    awk -v into="$samples/${page##*/}" '/^```/ { inside = !inside; n += inside; next } inside { print > (into "." n) }' "$page"
done
sed -n '/^\.Sh EXAMPLES/,/^\.Sh DIAGNOSTICS/p' docs/penstock.conf.5 |
    awk -v into="$samples/penstock.conf.5" '/^\.Bd/ { inside = 1; n++; next } /^\.Ed/ { inside = 0 } inside { print > (into "." n) }'

whole=0
for sample in "$samples"/*.*; do
    grep -q '^\[source ' "$sample" || continue
    whole=$((whole + 1))
    sed -i 's,@file:.*/,@credential:,' "$sample"
    sed -n 's/.*@credential://p' "$sample" | while read -r key; do
        echo made-up >"$CREDENTIALS_DIRECTORY/$key"
    done
    said=$(env -u PENSTOCK_UPSTREAM "$program" -t -c "$sample" 2>&1) || complain "${sample##*/} is refused"
    ! grep -E ':[0-9]+: |: warning: ' <<<"$said" || complain "${sample##*/}: the above was said about it"
done
((whole >= 5)) || complain "only $whole samples were found"
exit $bad
