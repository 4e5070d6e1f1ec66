"""The settings of the tasks, one file each: what a network has to learn. An experiment (`goru.lab.paper`) has one.

No torch is imported here: `goru.lab.problems` makes a task ready to be trained.
"""
