#!/bin/sh
# Creates the user and the group before the files, because some files belong to the group.
set -e
getent group @NAME@ >/dev/null || groupadd --system @NAME@
getent passwd @NAME@ >/dev/null || useradd --system --gid @NAME@ --no-create-home --home-dir /var/lib/@NAME@ --shell /usr/sbin/nologin @NAME@
