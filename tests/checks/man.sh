#!/usr/bin/env bash
# All four manual pages are there and mandoc has nothing to say about them.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
pages=(docs/penstockd.8 docs/penstockctl.1 docs/penstock.conf.5 docs/penstock-ledger.5)
bad=0
for page in "${pages[@]}"; do [[ -e $page ]] || { echo "there is no $page"; bad=1; }; done
mandoc -Tlint -Wwarning docs/*.[158] || bad=1
exit $bad
