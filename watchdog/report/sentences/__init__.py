"""The wording, by subject: each fact is put into words once, and every surface takes it from here."""
