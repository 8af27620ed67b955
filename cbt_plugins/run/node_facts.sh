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
