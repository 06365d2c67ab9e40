# Sourced by the other scripts of this folder: paths, running processes, and error messages.
# Linux only: process identity is read from /proc.

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
REPO="$(cd "$HERE/../.." && pwd)"
STATE_DIR="${STATE_DIR:-$REPO/.local}"
VENV_DIR="${VENV_DIR:-$REPO/.local/venv}"
MQTT_PORT="${MQTT_PORT:-1883}"
CLICKHOUSE_PORT="${CLICKHOUSE_PORT:-8123}"
# Longer than the 60 s that clickhouse_front.py gives its last statements.
STOP_SECONDS_MAX=75
# Debian keeps the broker in /usr/sbin, which is not on every user's PATH.
PATH="$PATH:/usr/sbin:/usr/local/sbin"

say() { echo "$*" >&2; }
fail() { say "error: $*"; exit 1; }

# True when Node and npm are installed, and Node is as new as vite and Playwright require (engines in map/page/package.json).
node_is_good() {
    command -v npm >/dev/null &&
        node -e 'const [major, minor] = process.versions.node.split("."); process.exit(major > 20 || (major == 20 && minor >= 19) ? 0 : 1)' 2>/dev/null
}

# True when something accepts connections on this port of 127.0.0.1.
port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# True when a ClickHouse is ready at this URL.
http_answers() {
    python3 - "${1%/}/ping" 2>/dev/null <<'PYTHON'
import sys, urllib.request
# Bypass any proxy: the server is this computer, or in its own network.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
sys.exit(opener.open(sys.argv[1], timeout=5).read().strip() != b"Ok.")
PYTHON
}

# --- Servers that `up` started: STATE_DIR/NAME.pid holds the process id, its start time in ticks since boot, and the port. ---

# Prints the start time of a process; nothing if it has ended or is a zombie. The kernel may reuse a process id, but not with the
# same start time.
start_time() {
    local stat
    stat="$(cat "/proc/$1/stat" 2>/dev/null)" || return 0
    # The name, field 2, may hold spaces: count from the parenthesis after it, where field 3 is the state.
    read -ra stat <<< "${stat##*) }"
    [[ "${stat[0]}" == Z ]] || echo "${stat[19]}"
}

remember() { echo "$2 $(start_time "$2") $3" > "$STATE_DIR/$1.pid"; } # NAME PID PORT
forget() { rm -f "$STATE_DIR/$1.pid"; }

# True when NAME runs; sets PID and PORT.
runs() {
    local began
    { read -r PID began PORT < "$STATE_DIR/$1.pid"; } 2>/dev/null || return 1
    [[ -n "$began" && "$(start_time "$PID")" == "$began" ]]
}

stop() {
    local name=$1 begin=$SECONDS is_reported=false
    runs "$name" && kill "$PID" 2>/dev/null
    while runs "$name"; do
        ((SECONDS - begin < STOP_SECONDS_MAX)) || fail "$name does not stop; end it with: kill -9 $PID"
        if ! $is_reported && ((SECONDS - begin >= 2)); then
            say "waiting for $name to finish its work"
            is_reported=true
        fi
        sleep 0.1
    done
    forget "$name"
}

# Only one `up` or `down` at a time; held until the script ends.
lock_state() {
    mkdir -p "$STATE_DIR"
    exec 9>"$STATE_DIR/lock"
    flock 9
}
