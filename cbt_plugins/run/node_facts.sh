#!/bin/sh
# What a node is: one `key value` a line.
echo "hostname $(hostname)"
echo "kernel $(uname -r)"
echo "arch $(uname -m)"
echo "boot $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
echo "cores $(nproc)"
echo "memory_kib $(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)"
echo "python $(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)"
# shellcheck source=/dev/null
echo "os $(. /etc/os-release 2>/dev/null; echo "$PRETTY_NAME")"

# what tunes it; a key that is not there is left out
cd /proc/sys && grep -s . /dev/null vm/swappiness vm/dirty_ratio vm/dirty_background_ratio vm/min_free_kbytes \
  vm/zone_reclaim_mode kernel/numa_balancing kernel/pid_max fs/aio-max-nr fs/file-max net/core/somaxconn \
  net/core/rmem_max net/core/wmem_max net/core/netdev_max_backlog net/core/default_qdisc net/ipv4/tcp_rmem \
  net/ipv4/tcp_wmem net/ipv4/tcp_congestion_control net/ipv4/tcp_mtu_probing net/ipv4/ip_local_port_range |
  sed 's|/|.|g; s/:/ /; s/\t/ /g; s/^/sysctl./'
[ -r /etc/tuned/active_profile ] && echo "tuned $(head -n 1 /etc/tuned/active_profile)"
governor=$(cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null | sort | uniq -c |
  sed 's/^ *\([0-9]*\) \(.*\)/\2*\1/' | tr '\n' ' ')
[ -n "$governor" ] && echo "governor $governor"
pages=$(sed -n 's/.*\[\(.*\)\].*/\1/p' /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null)
[ -n "$pages" ] && echo "hugepages $pages"

# limits of its daemons; no process is started for each of thousands
# shellcheck source=/dev/null
. ./ceph_processes.sh
daemon_program=
for folder in /proc/[0-9]*; do
  daemon_program "${folder#/proc/}"
  case $daemon_program in
    ceph-osd) name=osd ;;
    radosgw) name=rgw ;;
    *) continue ;;
  esac
  is_ours "${folder#/proc/}" || continue
  # both limits of a line: soft/hard
  sed -n "s/^Max open files *\([^ ]*\) *\([^ ]*\).*/ulimit.$name.nofile \1\/\2/p
    s/^Max processes *\([^ ]*\) *\([^ ]*\).*/ulimit.$name.nproc \1\/\2/p
    s/^Max locked memory *\([^ ]*\) *\([^ ]*\).*/ulimit.$name.memlock \1\/\2/p" "$folder/limits" 2>/dev/null
done | sort -u
exit 0
