"""Doctor: each check as a table, and what is said."""
