#!/bin/sh
# Limit the disk of one process by control groups: io.max of its unit (version 2), or a blkio group of its own (1).
#   in: action, name (of that group), process (PID:START), unit (of systemd, or empty), disks ("sdb ..."), iops, bps
#       (0: no limit of that kind); for all actions but look, as it has printed them: how, group, join, numbers, former;
#       sys (/sys; of tests)
#   action=look:  print "how v1" or v2, "group FOLDER", "join FOLDER" (which has the process), "numbers 8:16 ..." of the
#                 disks, "microseconds N" of a read now, and in version 2 "former LINE" for each line of io.max
#   action=set, unset, unset_seen (prints "recovered")
#   action=effect: print "in effect" when a read of the process's group takes at least half as long as the limit says
action=${action:?} name=${name:-} unit=${unit:-} iops=${iops:-0} bps=${bps:-0} group=${group:-} join=${join:-}
numbers=${numbers:-} how=${how:-} former=${former:-} sys=${sys:-/sys}
process=${process:?} pid=${process%:*}
alive() { [ "$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f20)" = "${process#*:}" ]; }
# whether a device (8:18) is one of $numbers, or lies on one of them: a partition, or a volume at any depth
lies_on() {
  case " $numbers " in *" $1 "*) return 0 ;; esac
  for below in "$sys/dev/block/$1/../dev" "$sys/dev/block/$1/slaves"/*/dev; do
    if [ -e "$below" ] && lies_on "$(cat "$below")"; then return 0; fi; done
  return 1; }
# the file that the process has open on these disks: an OSD may have its database on another disk
data() {
  for f in "/proc/$pid/fd"/*; do
    [ -b "$f" ] || continue
    # shellcheck disable=SC2046 # two words, or none if the process has just closed the file
    set -- $(stat -Lc '0x%t 0x%T' "$f" 2>/dev/null)
    if [ $# = 2 ] && lies_on "$(($1)):$(($2))"; then echo "$f"; return; fi; done
  for f in "/proc/$pid/fd"/*; do case $(readlink "$f") in */block) echo "$f"; return ;; esac; done; }
# the size of a read, and the microseconds that it takes at least under the limit
if [ "$iops" != 0 ]; then size=4096 least=$((1000000 / iops)); elif [ "$bps" != 0 ]; then
  size=65536 least=$((65536 * 1000000 / bps)); fi
# microseconds of a direct read: the mean of $2 reads by a process that has joined the folder $1, if there is one
reads() {
  file=$(data)
  begun=$(date +%s%N)
  # shellcheck disable=SC2016 # the inner shell expands them
  sh -c '[ -z "$1" ] || echo $$ > "$1/cgroup.procs" || exit
    exec dd if="$2" of=/dev/null iflag=direct bs="$3" count="$4"' sh "$1" "$file" "$size" "$2" 2>/dev/null || return
  echo $((($(date +%s%N) - begun) / 1000 / $2)); }
# where a mount shows it: the last one that is not hidden by another
mounted() {
  while read -r _ _ _ _ top options; do
    case "$1 $options" in "v2 "*" - cgroup2 "* | "v1 "*" - cgroup "*blkio*) echo "$top" ;; esac
  done < /proc/self/mountinfo; }
find_group() {
  own=$(sed -n 's/^0:://p' "/proc/$pid/cgroup")
  case $own in *"/$unit"*) [ -z "$unit" ] || for top in $(mounted v2); do
    g="$top${own%%"/$unit"*}/$unit"
    if [ -e "$g/io.max" ]; then
      printf '%s\n' "how v2" "group $g" "join $top$own"; sed 's/^/former /' "$g/io.max"; return; fi; done ;; esac
  own=$(sed -n 's/^[0-9]*:[^:]*blkio[^:]*://p' "/proc/$pid/cgroup")
  [ -z "$own" ] || for top in $(mounted v1); do
    g="$top${own%/}"
    if [ -e "$g/blkio.throttle.read_iops_device" ]; then
      printf '%s\n' "how v1" "group $g/$name" "join $g/$name"; return; fi; done
  echo "no control group can limit the disk for only this process ($pid): neither io.max of a unit (IOAccounting=yes),\
 nor blkio.throttle" >&2
  return 1; }
case $action in
  look)
    alive || { echo "process $pid has ended" >&2; exit 1; }
    for i in ${disks:?}; do numbers="$numbers${numbers:+ }$(cat "$sys/block/$i/dev")" || exit 1; done
    [ -n "$(data)" ] || { echo "process $pid has no file open on $disks" >&2; exit 1; }
    find_group || exit 1
    echo "numbers $numbers"
    us=$(reads '' 20) || { echo "a direct read of the disk of process $pid failed" >&2; exit 1; }
    [ $((us * 2)) -lt "$least" ] || {
      echo "a read takes $us microseconds already: the limit, $least microseconds a read, has no effect" >&2
      exit 1; }
    echo "microseconds $us" ;;
  set)
    alive || { echo "process $pid has ended" >&2; exit 1; }
    if [ "$how" = v2 ]; then
      for i in $numbers; do
        l=$i
        [ "$iops" = 0 ] || l="$l riops=$iops wiops=$iops"
        [ "$bps" = 0 ] || l="$l rbps=$bps wbps=$bps"
        echo "$l" > "$group/io.max" || exit 1
      done
    else
      mkdir -p "$group" || exit 1
      for i in $numbers; do for way in read write; do
        [ "$iops" = 0 ] || echo "$i $iops" > "$group/blkio.throttle.${way}_iops_device" || exit 1
        [ "$bps" = 0 ] || echo "$i $bps" > "$group/blkio.throttle.${way}_bps_device" || exit 1
      done; done
      echo "$pid" > "$group/cgroup.procs"
    fi ;;
  unset)
    [ -d "$group" ] || exit 0
    if [ "$how" = v2 ]; then
      for i in $numbers; do
        l=$(printf '%s\n' "$former" | grep "^$i ")
        # a disk that is gone, or has another number since a boot, has no limit
        echo "${l:-$i rbps=max wbps=max riops=max wiops=max}" > "$group/io.max" || [ ! -e "/sys/dev/block/$i" ] || exit 1
      done
    else
      n=0
      until rmdir "$group" 2>/dev/null || [ "$n" -ge 50 ]; do
        while read -r p; do echo "$p" > "${group%/*}/cgroup.procs"; done < "$group/cgroup.procs"
        n=$((n + 1)); sleep 0.1
      done
      [ ! -d "$group" ]
    fi ;;
  unset_seen)
    if [ "$how" = v2 ] && [ -d "$group" ]; then
      for i in $numbers; do
        [ "$(grep "^$i " "$group/io.max")" = "$(printf '%s\n' "$former" | grep "^$i ")" ] || exit 1; done
    elif [ -d "$group" ]; then exit 1; fi
    echo recovered ;;
  effect)
    [ "$how" = v2 ] || grep -qx "$pid" "$group/cgroup.procs" || { echo "process $pid is not in $group" >&2; exit 1; }
    us=$(reads "$join" $((1000000 / least + 5))) || exit 1
    [ $((us * 2)) -lt "$least" ] && echo "$us microseconds a read" || echo 'in effect' ;;
esac
