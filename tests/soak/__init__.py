"""A node that lives: the production code from the reading to the act, on a simulated kernel, driver and cluster.

An oracle that shares nothing with the core knows the truth and checks the laws after every step.
"""
