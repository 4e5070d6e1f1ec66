"""The recurrent layers and their cells."""
