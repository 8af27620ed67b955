#!/bin/sh
# What a dead man's switch runs: try the recovery until it succeeds, up to 30 times, then give up.
#   in: recovery (text), attempt (seconds until one is given up), pause (seconds between two); $1: path of the switch's files
# An attempt that hangs is ended as a process group of its own; disarming ends the group that waits for it.
recovery=${recovery:?} attempt=${attempt:?} pause=${pause:?}
p='' n=0
trap '${p:+kill $p}; exit' TERM
tried() {
  timeout -k 5 "$attempt" sh -c "$recovery" &
  p=$!
  if wait "$p"; then p=; else p=; return 1; fi
}
until tried; do
  n=$((n + 1))
  [ "$n" -lt 30 ] || exit 1
  sleep "$pause"
done
date +%s.%N > "$1.fired"
