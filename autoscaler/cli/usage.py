"""Exit codes of the commands, and the error for arguments that no command can use."""

import argparse
import re

OK, PROBLEMS, WRONG = 0, 1, 2


class Unusable(Exception):
    """An argument cannot be used; the text says why and what to do."""


def repository(value: str) -> str:
    """The argument as it is, where GitHub could have a repository of that name."""
    if not re.fullmatch(r"[\w-]+/(?!\.{1,2}$)[\w.-]+", value, re.ASCII):
        raise argparse.ArgumentTypeError(f"{value!r} is not OWNER/REPO")
    return value
