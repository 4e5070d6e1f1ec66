"""Tasks made ready for a run: batches, the network, losses and scores. The settings are in `goru.lab.tasks`.

These modules need torch; the settings do not, so that listing experiments takes no time.
"""
