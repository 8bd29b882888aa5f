"""The drivers of GPUs. What the rest of the program knows of one is its `protocol`; `opening` chooses one."""
