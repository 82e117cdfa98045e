#!/usr/bin/env bash
# Installs what the services in Python here need into .venv, the first time and when that changes.
set -euo pipefail
cd "$(dirname "$0")"

(
    flock 9
    wanted=$(cat requirements.txt ../../examples/python/requirements.txt)
    if [ "$wanted" != "$(cat .venv/installed 2>/dev/null || true)" ]; then
        python3 -m venv --clear .venv
        .venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
        printf '%s\n' "$wanted" >.venv/installed
    fi
) 9>"${TMPDIR:-/tmp}/hindcast-services-python-$(id -u).lock"
