#!/bin/sh
# Run a command that nobody needs any more when the connection ends: end_with_input.sh COMMAND...
#
# Standard input says nothing, and ends with the connection, or with the process at its other end, however that ended.
exec 3<&0
env "$@" </dev/null 3<&- &
pid=$!
end() {
  # root started by sudo takes signals from root alone, and sudo passes none on from its own process group
  kill -s "$1" "$pid" || sudo -n setsid kill -s "$1" "$pid"
}
{
  while read -r _; do :; done
  end TERM
  sleep 5
  end KILL
} <&3 >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$pid"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
