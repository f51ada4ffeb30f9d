#!/usr/bin/env bash
# Nothing in the tree looks like a real key, names a path of somebody's machine or a package registry.
# (A template for mkdtemp is no such path.) Brackets in the patterns keep this file from finding itself.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
patterns=(
    's[k]-(proj-|ant-)?[A-Za-z0-9_]{24,}'
    'A[K]IA[0-9A-Z]{16}'
    'A[I]za[0-9A-Za-z_-]{35}'
    'g[h][pousr]_[A-Za-z0-9]{30,}'
    'x[o]x[abprs]-[0-9A-Za-z-]{10,}'
    'BEGI[N] ([A-Z]+ )?PRIVATE KEY'
    '(^|[^A-Za-z0-9_./*$}-])/(wor[k]|roo[t])/'
    '/hom[e]/[a-z]+/'
    '(^|[^}A-Za-z0-9_.-])/tm[p]/[A-Za-z0-9]'
    'registr[y]\.(npm|yarn)[a-z]*\.'
)
expression=$(IFS='|'; echo "${patterns[*]}")
found=$(tests/checks/files | grep -vE '^tests/fuzz/corpus/' |
    xargs -d '\n' grep -nIE "$expression" | grep -v 'XXXXXX' | cut -c 1-160)
[[ -z $found ]] || { echo "$found"; exit 1; }
