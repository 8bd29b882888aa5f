"""Prometheus, Alertmanager and a receiver of webhooks, as real programs on free ports of loopback.

Each is a context manager that is ready inside and ends by its PID; it also ends when the tests are killed. Waits fail
after 60 s unless another limit is given, and report what is there. Without its program a test is skipped, and fails in
CI.
"""
