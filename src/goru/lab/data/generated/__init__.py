"""Generated data in the formats of the files, so every experiment can run without files."""
