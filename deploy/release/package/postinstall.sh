#!/bin/sh
# Starts nothing. A process that runs goes on as it is: docs/operations.md has the order of an upgrade.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
case "$1:${2:-}" in
    configure: | 1:) echo "@NAME@: set /etc/@NAME@/@NAME@.toml, then: systemctl enable --now @NAME@" ;;
    *) echo "@NAME@: upgraded. What runs is the former version until: systemctl restart @NAME@" ;;
esac
