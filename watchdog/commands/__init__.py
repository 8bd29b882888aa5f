"""The subcommands that need no folder of their own."""
