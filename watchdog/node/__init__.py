"""The node itself: NVML, /proc, cgroups, pidfds. Vendor and kernel types stop here."""
