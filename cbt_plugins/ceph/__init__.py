"""What we ask and tell Ceph."""
