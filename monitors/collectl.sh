#!/bin/sh
# Start collectl on a node: collectl.sh FOLDER COMMAND
#
# It gets a session of its own, so that one signal reaches all that COMMAND starts, and is recorded in FOLDER. Two names
# of a node may be one machine: there it is started once, as two of it would write the same files. Two machines may share
# FOLDER: each has a record of its own.
command -v collectl >/dev/null || {
  echo missing
  exit 0
}
umask 022 # of what comes into the archive; the folder here is closed
own_folder "$1" make || exit 1

started() {
  # start time: field 22 of stat; the second field may have spaces. Nothing for a process that has ended
  sed -n 's/.*) //; /^Z/!p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

machine=$(cat /proc/sys/kernel/random/boot_id)-$(started 1) # a container has the boot of its host, and a first process
record=$1/collectl.$machine.pid
exec 9<"$1" && flock 9 || exit 1
pid="" since=""
[ ! -f "$record" ] || read -r pid since _ <"$record"
if [ -z "$since" ] || [ "$(started "$pid")" != "$since" ]; then
  setsid sh -c "$2" </dev/null >>"$1/output.txt" 2>&1 9<&- &
  echo "$! $(started $!) $machine" >"$record"
fi
echo started
