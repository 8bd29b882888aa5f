"""The pictures of the documents, made by commands that anyone can run again."""
