"""Worlds, tables and laws."""
