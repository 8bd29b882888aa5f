"""What comes from Kubernetes, or from files of its objects."""
