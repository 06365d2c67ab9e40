# Sourced by the other scripts of this folder. Each script runs a broker in the foreground on
# 127.0.0.1:$MQTT_PORT, with its state in $STATE_DIR. Downloads and builds are kept in
# target/brokers/NAME.
set -euo pipefail
name=$(basename "$0")
here=$(cd "$(dirname "$0")" && pwd)
built=$here/../../target/brokers/$name
mkdir -p "$built" "$STATE_DIR"
