"""Acting: the only step that changes anything."""
