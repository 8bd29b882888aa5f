"""Tests of doctor: each check as a table, and the output."""
