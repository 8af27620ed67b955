#!/bin/sh
# Clear the logical volumes of a destroyed OSD on this node, as `ceph-volume lvm zap` does.
#   in: folder (of the OSD's daemon), osd_fsid, volumes="VG/LV ..."
# cephadm keeps the folder until the orchestrator has removed the daemon, because the OSD is destroyed. Before that
# nothing is cleared. The tags are removed last: a volume that has them is not clear yet.
folder=${folder:?} osd_fsid=${osd_fsid:?} volumes=${volumes:?}
zero() { dd if=/dev/zero of="/dev/$1" bs=1M seek="$2" count="$3" conv=fsync,notrunc 2>/dev/null; }
clear_volume() {
  wipefs --all --quiet "/dev/$1" && zero "$1" 0 10 || return
  # copies of BlueStore's label, as later releases of Ceph write them: after 1 GiB, 10 GiB, ...
  for gib in 1 10 100 1000; do zero "$1" $((gib * 1024)) 1 || break; done
}
[ ! -e "$folder" ] || exit 0
status=0
for v in $volumes; do
  tags=$(lvs --noheadings -o lv_tags "$v") || { status=$?; continue; }
  tags=$(printf '%s' "$tags" | tr -d ' ')
  case ",$tags," in *",ceph.osd_fsid=$osd_fsid,"*) ;; *) continue ;; esac
  clear_volume "$v" || { status=$?; continue; }
  set -f; set --; IFS=,
  for tag in $tags; do case $tag in ceph.*) set -- "$@" --deltag "$tag" ;; esac; done
  unset IFS; set +f
  lvchange --quiet "$@" "$v" >/dev/null || status=$?
done
exit "$status"
