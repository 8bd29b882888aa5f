"""Tests of the daemon and its commands against a real Kubernetes; tests/rig/cluster has what they are built from."""
