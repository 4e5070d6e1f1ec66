"""Tasks ready for a run: batches, the network, losses and scores. The settings are in `goru.lab.tasks`.

These modules import torch; the settings do not, so listing experiments is fast.
"""
