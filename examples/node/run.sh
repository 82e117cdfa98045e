#!/usr/bin/env bash
# Starts the service on $PORT with the database $DATABASE_URL; the first time, installs what it needs into node_modules.
#
#   run.sh             start
#   run.sh --traced    start with OpenTelemetry, for recording from outside
#   run.sh --install   only install
set -euo pipefail
cd "$(dirname "$0")"

(
    flock 9
    if ! cmp -s package-lock.json node_modules/installed; then
        npm ci --loglevel=error
        cp package-lock.json node_modules/installed
    fi
) 9>"${TMPDIR:-/tmp}/hindcast-example-node-$(id -u).lock"
if [ "${1-}" = --install ]; then exit; fi

: "${PORT:?the port to listen on}" "${DATABASE_URL:?the database, e.g. postgres://me@127.0.0.1:6432/wallet}"
if [ "${1-}" = --traced ]; then exec node --require ./tracing.js server.js; fi
exec node server.js
