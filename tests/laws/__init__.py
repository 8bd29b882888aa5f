"""The laws, each a property test on generated nodes."""
