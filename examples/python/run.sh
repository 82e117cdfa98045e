#!/usr/bin/env bash
# Starts the service on $PORT with the database $DATABASE_URL; the first time, installs what it needs into .venv.
#
#   run.sh             start
#   run.sh --install   only install
set -euo pipefail
cd "$(dirname "$0")"

(
    flock 9
    if ! cmp -s requirements.txt .venv/installed; then
        python3 -m venv --clear .venv
        .venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
        cp requirements.txt .venv/installed
    fi
) 9>"${TMPDIR:-/tmp}/hindcast-example-python-$(id -u).lock"
if [ "${1-}" = --install ]; then exit; fi

: "${PORT:?the port to listen on}" "${DATABASE_URL:?the database, e.g. postgres://me@127.0.0.1:6432/rooms}"
exec .venv/bin/uvicorn app:app --host 127.0.0.1 --port "$PORT" --no-access-log
