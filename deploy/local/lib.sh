# Sourced by the scripts beside it: where things are, and how they say what is wrong.
# Linux only: process identity is read from /proc.

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
REPO="$(cd "$HERE/../.." && pwd)"
STATE_DIR="${STATE_DIR:-$REPO/.local}"
VENV_DIR="${VENV_DIR:-$REPO/.local/venv}"
MQTT_PORT="${MQTT_PORT:-1883}"
CLICKHOUSE_PORT="${CLICKHOUSE_PORT:-8123}"
# Debian keeps the broker in /usr/sbin, which is not on every user's PATH.
PATH="$PATH:/usr/sbin:/usr/local/sbin"

say() { echo "$*" >&2; }
fail() { say "error: $*"; exit 1; }

# True when something accepts connections on this port of 127.0.0.1.
port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
