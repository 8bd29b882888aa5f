"""The shapes of the API's objects, and what the core knows of them."""
