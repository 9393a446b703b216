"""From the operators' file to `scheduling.policy`: YAML with line marks, validation and warnings.

Belongs here: everything that can name a file, a line and a key.

Never here: what a rule of the policy does, which is the core's.
"""
