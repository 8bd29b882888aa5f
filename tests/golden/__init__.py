"""Worlds with what the command says of each, stored: a rewrite of the program that changes none of it changes nothing.

Black box: nothing of the program is imported, only its command is run. A world is a row of a table (`declaring`,
`scanned`, `acted`, `held`, `tellings`): GPUs, pods, processes, a policy, and what happens. What comes out is kept by
the names that users rely on, without sentences and without what is another on each run, in `expected/NAME.json`.

    python -m tests.golden                      # says which worlds differ
    python -m tests.golden --write [NAME...]    # stores again what they say now
"""
