#!/bin/sh
# Disturb packets between this node and others: an nft table, and an HTB class on the interfaces for what leaves.
#   in: action, table, rules (text of nft), peers (their addresses), htb, leaf (class and qdisc of tc; empty: nothing is classed),
#       directions ("arriving", "leaving"), needs (text: without it nothing is disturbed), ping (an address; empty:
#       no round trip is measured), before (its round trip without the delay) and delay, in microseconds
#   action=look:  print "dev DEVICE MBIT" for each interface to the peers; fails when its root qdisc is not the kernel's own;
#                 for a delay print "ping ADDRESS MICROSECONDS" for the first peer that answers
#   action=try:   set all of it up in a network that nothing else is in: what this kernel cannot do fails
#   action=set:   do it; `devices` are those that `look` has printed
#   action=unset: take it away; nothing of it there is no error
#   action=unset_seen: print "recovered" when nothing of it is there
#   action=effect: print "in effect" when packets were dropped, held or delayed, and the round trip is as long as the delay
#   action=reading: print the numbers of these packets and the round trip as JSON, with warnings
action=${action:?} table=${table:?} rules=${rules:-} peers=${peers:-} htb=${htb:-} leaf=${leaf:-} devices=${devices:-}
directions=${directions:-} needs=${needs:-} ping=${ping:-} before=${before:-0} delay=${delay:-0}
# where nft or tc does not answer, nobody knows what is there: that is an error, and not "nothing"
ours() {
  q=$(LC_ALL=C tc qdisc show dev "$1" 2>&1) ||
    case $q in *'Cannot find device'*) return 1 ;; *) echo "tc qdisc show dev $1: $q" >&2; exit 1 ;; esac
  printf '%s\n' "$q" | grep -q '^qdisc htb cb: root'
}
has_table() { t=$(nft list tables) || exit 1; printf '%s\n' "$t" | grep -qx "table inet $table"; }
shape() {
  # shellcheck disable=SC2086 # words
  tc qdisc add dev "$1" root handle cb: htb default 0 && tc class add dev "$1" parent cb: classid cb:1 htb $htb &&
    tc qdisc add dev "$1" parent cb:1 handle cb1: $leaf
}
set_all() {
  for i in $devices; do shape "$i" || return 1; done
  printf '%s\n' "$rules" | nft -f -
}
counted() { nft list counters table inet "$table" | sed -n "/counter $1 {/{n;s/.*packets \([0-9]*\).*/\1/p;}"; }
# packets that a qdisc has dropped or delayed, or how often the class was over its limit: as the qdisc itself counts
queued() {
  for i in $devices; do LC_ALL=C tc -s qdisc show dev "$i"; done | sed -n '/^qdisc [^ ]* cb1*:/{N
    s/^qdisc [^ ]* \(cb1*\): .*\n.* \([0-9]*\) pkts* (dropped \([0-9]*\), overlimits \([0-9]*\) .*/\1 \2 \3 \4/p;}' | {
    n=0
    while read -r handle sent dropped over; do
      case $handle:${leaf%% *} in
        cb:bfifo) n=$((n + over)) ;;
        cb1:netem) n=$((n + sent)) ;;
        cb1:*) n=$((n + dropped)) ;;
      esac
    done
    echo "$n"; }
}
seen() {
  for direction in $directions; do
    case $direction:$leaf in leaving:?*) n=$(queued) ;; *) n=$(counted "$direction") ;; esac
    echo "$direction ${n:-0}"
  done
}
# the shortest of three round trips in microseconds; nothing without a reply within $2 seconds
round_trip() {
  LC_ALL=C ping -n -q -c 3 -W "$2" "$1" 2>/dev/null |
    sed -n 's|.* = 0*\([0-9]*\)\.\([0-9]\{3\}\)[0-9]*/.*|\1\2|p' | sed 's/^0*\([0-9]\)/\1/'
}
case $action in
  look)
    for p in nft ip ${leaf:+tc}; do command -v "$p" >/dev/null || { echo "$p is missing" >&2; exit 1; }; done
    for i in $(for p in $peers; do ip -o route get "$p" 2>/dev/null; done | sed -n 's/.* dev \([^ ]*\).*/\1/p' | sort -u)
    do
      [ "$i" != lo ] || continue
      root=$(tc qdisc show dev "$i" 2>/dev/null | sed -n 's/^qdisc \([^ ]* [^ ]*\) root.*/\1/p')
      case $root in '' | *' 0:') ;; *) [ -z "$leaf" ] || {
        echo "the root qdisc of $i is $root, not the kernel's own: the fault would remove $root" >&2; exit 1; } ;; esac
      echo "dev $i $(cat "/sys/class/net/$i/speed" 2>/dev/null)"
    done
    case $leaf in netem*) n=0; for p in $peers; do
      n=$((n + 1)) trip=$(round_trip "$p" 1)
      [ -z "$trip" ] || { echo "ping $p $trip"; break; }
      [ "$n" -lt 4 ] || break; done ;; esac ;;
  try) devices=${leaf:+lo} && set_all ;;
  set) set_all ;;
  unset)
    ! has_table || nft delete table inet "$table" || exit 1
    for i in $devices; do ! ours "$i" || tc qdisc del dev "$i" root handle cb: || exit 1; done ;;
  unset_seen)
    for i in $devices; do ! ours "$i" || exit 1; done
    has_table || echo recovered ;;
  effect)
    if ! seen | grep -qv ' 0$'; then
      echo "no packet was dropped, held or delayed yet: $directions${needs:+; the fault needs $needs}"
    elif [ -n "$ping" ] && { now=$(round_trip "$ping" 12); [ "${now:-0}" -lt $((delay * 9 / 10)) ]; }; then
      echo "the round trip to $ping takes ${now:-?} us, and $before us without the delay"
    else echo 'in effect'; fi ;;
  reading)
    links='' warnings=''
    while read -r direction n; do
      links="$links${links:+, }\"$direction\": $n"
      [ "$n" -gt 0 ] || warnings="$warnings${warnings:+, }\"no packet that is $direction was disturbed yet\""
    done <<X
$(seen)
X
    [ -z "$ping" ] ||
      links="$links, \"round_trip_us\": {\"before\": $before, \"in force\": $(round_trip "$ping" 12 | grep . || echo null)}"
    echo "{\"links\": {$links}, \"warnings\": [$warnings]}" ;;
esac
