"""The tasks, one file each: what a network has to learn. An experiment (`goru.lab.paper`) has one of them."""
