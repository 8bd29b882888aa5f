"""Writes deploy/grafana/gpu-memory-watchdog.json: the Grafana dashboard, from a few dozen short descriptions of panels.

The JSON is some 3,000 lines in which every panel repeats the same forty; written by hand, two panels soon differ where
nobody meant them to. `queries` has the words of which the PromQL is made, `panels` how a panel looks as JSON, `grid`
where it stands, and one module each has a row: what is asked there, and in which words it is explained.
"""
