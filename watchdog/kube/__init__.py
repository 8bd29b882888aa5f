"""What Kubernetes tells. API shapes end here."""
