#!/bin/sh
# At a removal $1 is `remove` from dpkg and 0 from rpm. An upgrade stops nothing.
set -e
case "$1" in
    remove | 0)
        if [ -d /run/systemd/system ]; then systemctl disable --now @UNITS@ || true; fi
        ;;
esac
