#!/usr/bin/env bash
# Installs Bun into node_modules, the first time and when that changes.
set -euo pipefail
cd "$(dirname "$0")"

(
    flock 9
    if ! cmp -s package-lock.json node_modules/installed; then
        npm ci --loglevel=error
        cp package-lock.json node_modules/installed
    fi
) 9>"${TMPDIR:-/tmp}/hindcast-services-bun-$(id -u).lock"
