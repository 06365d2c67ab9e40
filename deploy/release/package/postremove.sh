#!/bin/sh
# Configuration and spool stay until `dpkg --purge`; rpm never removes them.
set -e
if [ "$1" = purge ]; then rm -rf /var/lib/@NAME@ /etc/@NAME@; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
