"""The manifests under deploy/."""
