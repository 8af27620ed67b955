#!/bin/sh
# Print the state of network interfaces: what `ip link set down` takes away, and whether we come through one of them.
#   in:  devices="eth0 ..."
#   out: "link DEVICE STATE", "over DEVICE" (stacked on one of them: a bridge, a bond, a VLAN), "route FAMILY DEVICE ROUTE"
#        and "addr DEVICE ADDRESS" (lasting IPv6 addresses, which are lost), "via DEVICE" (of our own connection)
all=${devices:?}
stacked() {
  for u in "/sys/class/net/$1"/upper_*; do
    u=${u##*/upper_}
    case " $all * " in *" $u "*) ;; *) all="$all $u"; echo "over $u"; stacked "$u" ;; esac
  done
}
for i in $devices; do
  echo "link $i $(cat "/sys/class/net/$i/operstate" 2>/dev/null || echo missing)"
  stacked "$i"
done
for i in $all; do
  # of what is stacked only VLANs go down, and lose their routes
  case " $devices " in *" $i "*) ;; *) grep -qx DEVTYPE=vlan "/sys/class/net/$i/uevent" || continue ;; esac
  for f in 4 6; do
    ip "-$f" route show table all dev "$i" 2>/dev/null | grep -v 'proto kernel\|^local\|^broadcast\|^multicast' |
      while read -r r; do echo "route $f $i $r"; done; done
  ip -6 -o addr show dev "$i" scope global 2>/dev/null | grep -v dynamic |
    while read -r _ _ _ a _; do echo "addr $i $a"; done
done
us=${SSH_CONNECTION:-}
us=${us%% *}
[ -z "$us" ] || echo "via $(ip -o route get "$us" 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p')"
true
