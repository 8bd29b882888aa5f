"""What the node itself tells: NVML, /proc, cgroups, pidfds. Vendor and kernel shapes end here."""
