"""Actions: kills of real processes, evictions through an API that a test answers for, and what comes before them."""
