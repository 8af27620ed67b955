#!/bin/sh
# Disturb packets between this node and others: an nft table, and an HTB class on the interfaces for what leaves.
#   in: action, table, rules (text of nft), peers (their addresses), htb, leaf (class and qdisc of tc; empty: nothing is classed)
#   action=look:  print "dev DEVICE MBIT" for each interface to the peers; fails when its root qdisc is not the kernel's own
#   action=try:   set all of it up in a network that nothing else is in: what this kernel cannot do fails
#   action=set:   do it; `devices` are those that `look` has printed
#   action=unset: take it away; nothing of it there is no error
#   action=unset_seen: print "recovered" when nothing of it is there
#   action=effect: print "in effect" when a counter of the table has counted
action=${action:?} table=${table:?} rules=${rules:-} peers=${peers:-} htb=${htb:-} leaf=${leaf:-} devices=${devices:-}
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
    done ;;
  try) devices=${leaf:+lo} && set_all ;;
  set) set_all ;;
  unset)
    ! has_table || nft delete table inet "$table" || exit 1
    for i in $devices; do ! ours "$i" || tc qdisc del dev "$i" root handle cb: || exit 1; done ;;
  unset_seen)
    for i in $devices; do ! ours "$i" || exit 1; done
    has_table || echo recovered ;;
  effect)
    ! nft list counters table inet "$table" | grep -q 'packets [1-9]' || echo 'in effect' ;;
esac
