"""The way to the API server: requests, answers, credentials, and what went wrong, in sentences."""
