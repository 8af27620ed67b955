#!/bin/sh
# Start collectl on a node: collectl.sh FOLDER COMMAND
#
# It gets a session of its own, so that one signal reaches all that COMMAND starts, and is recorded in FOLDER.
command -v collectl >/dev/null || {
  echo missing
  exit 0
}
umask 022 # of what comes into the archive; the folder here is closed
own_folder "$1" make || exit 1
setsid sh -c "$2" </dev/null >"$1/output.txt" 2>&1 &
echo "$! $(sed 's/.*) //' /proc/$!/stat | cut -d' ' -f20)" >"$1/collectl.pid"
echo started
