"""Kubernetes: its objects, requests to its API, and files with its objects. API types stop here."""
