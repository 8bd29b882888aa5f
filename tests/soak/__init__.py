"""A node that lives: the production code from the reading to the act, on a simulated kernel, driver and cluster.

An oracle with arithmetic of its own knows the truth and checks the laws after every step.
"""
