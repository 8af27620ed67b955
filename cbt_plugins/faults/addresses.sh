#!/bin/sh
# Print the addresses of this node, one a line, without those of lo and link-local ones.
ip -o addr show scope global | while read -r _ _ _ address _; do echo "${address%/*}"; done
