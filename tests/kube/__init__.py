"""Kubernetes objects, from the API or from files, and requests to the API."""
