#!/usr/bin/env bash
# The demo, from nothing: make demo [EPISODES=n] [RECORD=1]. Report: out/demo/report.html.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
options=()
[ -z "${EPISODES:-}" ] || options+=(--episodes "$EPISODES")
[ "${RECORD:-0}" = 0 ] || options+=(--record)
exec "$here/env.sh" python "$here/main.py" "${options[@]}" "$@"
