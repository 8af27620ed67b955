#!/bin/sh
# Reboot this node when the connection that asked for it has closed, unless that was undone meanwhile.
#   in: command; $1: path of the fault's files; $2: process of the connection's shell
# The file .rebooting disappears with /run when the node has booted; it is removed where the command failed.
command=${command:?}
[ ! -e "$1.undone" ] || exit 0
: > "$1.rebooting"
i=0
while [ -d "/proc/$2" ] && [ "$i" -lt 50 ]; do sleep 0.1; i=$((i + 1)); done
sleep 0.5 # for its exit status to arrive
if [ -e "$1.undone" ] || ! eval "$command"; then rm -f "$1.rebooting"; fi
