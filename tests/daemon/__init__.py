"""The act: real processes, real signals, and a record in memory in place of the journal."""
