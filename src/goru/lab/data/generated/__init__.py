"""Data that the project makes itself, in the files' formats: every experiment runs with no files at all."""
