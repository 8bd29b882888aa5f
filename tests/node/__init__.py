"""What touches the driver and the kernel."""
