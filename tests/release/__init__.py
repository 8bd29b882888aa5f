"""The release, built twice and compared, and its parts."""
