"""The data sets' formats: bytes in, values out, or an error that names the file and the line."""
