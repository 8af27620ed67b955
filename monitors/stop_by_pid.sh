#!/bin/sh
# End the process groups that are recorded as "pid start-time machine" in the *.pid files of folders:
# stop_by_pid.sh FOLDER...
#
# A process that does not lead its group, as in a container, is ended alone.
# A process whose start time is another one is not signalled: its number was given away again. Nor is one that somebody
# else can have recorded. Files of another machine, which shares the folder, stay: only that one can end its processes.
alive() {
  # shellcheck disable=SC2046 # words are wanted: the fields from the state on
  set -- $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null)
  [ "${20}" = "$since" ] && [ "$1" != Z ]
}

here=$(cat /proc/sys/kernel/random/boot_id)-$(sed 's/.*) //' /proc/1/stat 2>/dev/null | cut -d' ' -f20)
status=0
for folder; do
  own_folder "$folder" look 2>/dev/null || continue
  for file in "$folder"/*.pid; do
    [ -f "$file" ] || continue
    read -r pid since machine <"$file"
    [ "${machine:-$here}" = "$here" ] || continue
    for signal in INT TERM KILL; do
      alive || break
      kill -s "$signal" -- "-$pid" 2>/dev/null || kill -s "$signal" "$pid"
      for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        sleep 0.05
        alive || break
        sleep 0.2
      done
    done
    if alive; then
      echo "$file: process $pid does not end" >&2
      status=1
    else
      rm -f -- "$file"
    fi
  done
done
exit "$status"
