"""One recurrence, several implementations: see dispatch.py for how one is chosen."""
