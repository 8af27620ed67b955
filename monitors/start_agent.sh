#!/bin/sh
# Run an agent on a node: start_agent.sh FOLDER NAME files|connection PYTHON-ARGUMENT...
#
# Its lines go to FOLDER/NAME.jsonl and its errors to FOLDER/output.txt, or both to the connection. It leads its process
# group, but not in a container, and is recorded with its start time and its machine in FOLDER/NAME.pid. An agent that a
# lost connection has left behind there is ended first.
umask 022 # of what comes into the archive; the folder here is closed
own_folder "$1" make && cd -- "$1" || exit 1
name=$2 output=$3
shift 3

started() {
  # start time: field 22 of stat; the second field may have spaces
  sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

if [ -f "$name.pid" ] && read -r pid since _ <"$name.pid" && [ "$(started "$pid")" = "$since" ]; then
  kill "$pid"
fi
# a container has the boot of its host, and a first process
echo "$$ $(started $$) $(cat /proc/sys/kernel/random/boot_id)-$(started 1)" >"$name.pid"

if [ "$output" = files ]; then
  echo begun # the login is over
  # what a kill or a full disk has torn must not take our first line with it
  [ ! -s "$name.jsonl" ] || [ "$(tail -c 1 -- "$name.jsonl" | wc -l)" -eq 1 ] || echo >>"$name.jsonl"
  exec >>"$name.jsonl" 2>>output.txt
fi

# the distribution's Python is the one that has Ceph's bindings
python=/usr/bin/python3
[ -x "$python" ] || python=python3
exec "$python" "$@"
