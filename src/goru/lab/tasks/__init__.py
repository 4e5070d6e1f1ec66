"""The settings of the tasks, one file each: what a network has to learn. An experiment (`goru.lab.paper`) has one.

These modules do not import torch; `goru.lab.problems` prepares a task for training.
"""
