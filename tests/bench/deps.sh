#!/usr/bin/env bash
# What `make bench` measures beside us and Debian does not have: the Node gateway, in the versions of its
# lock file, from the package registry that npm is set up for.
set -euo pipefail
cd "$(dirname "$0")/portkey"
if ! cmp -s package-lock.json node_modules/.penstock-lock; then
    npm ci --silent --ignore-scripts --no-audit --no-fund
    cp package-lock.json node_modules/.penstock-lock
fi
echo "The Node gateway is there; web servers came with this goal."
