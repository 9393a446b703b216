"""Exit codes of the commands, and the error for arguments that no command can use."""

OK, PROBLEMS, WRONG = 0, 1, 2


class Unusable(Exception):
    """An argument cannot be used; the text says why and what to do."""
