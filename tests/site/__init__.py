"""The site of the documentation, built and crawled."""
