#!/bin/sh
# Starts nothing, and running processes keep running: docs/operations.md has the order of an upgrade.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
case "$1:${2:-}" in
    configure: | 1:) echo "@NAME@: set /etc/@NAME@/@NAME@.toml, then: systemctl enable --now @NAME@" ;;
    *) echo "@NAME@: upgraded. The former version runs until: systemctl restart @NAME@" ;;
esac
