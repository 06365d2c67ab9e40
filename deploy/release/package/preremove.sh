#!/bin/sh
# `remove` is dpkg's word and 0 rpm's; an upgrade stops nothing.
set -e
case "$1" in
    remove | 0)
        if [ -d /run/systemd/system ]; then systemctl disable --now @UNITS@ || true; fi
        ;;
esac
