"""What arguments of commands may be: each takes the text, gives the value, and says what was expected."""

from __future__ import annotations

import argparse
import re


def repository(value: str) -> str:
    """The argument as it is, where GitHub could have a repository of that name."""
    if not re.fullmatch(r"[\w-]+/(?!\.{1,2}$)[\w.-]+", value, re.ASCII):
        raise argparse.ArgumentTypeError(f"{value!r} is not OWNER/REPO")
    return value


def address(value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{value!r} is not HOST:PORT, such as 0.0.0.0:8081")
    return host, int(port)


def count(value: str) -> int:
    number = int(value) if value.isdecimal() and len(value) < 8 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number from 1 on")
    return number


def limit(value: str) -> str:
    if not (value.isdecimal() and 1 <= int(value) <= 1000):
        raise argparse.ArgumentTypeError(f"{value!r} is not a number from 1 to 1000")
    return value


def target(value: str) -> str:
    kind, _, name = value.partition(":")
    if value != "all" and (kind not in ("provider", "type") or not name):
        raise argparse.ArgumentTypeError(f"{value!r} is not provider:NAME, type:NAME or all")
    return value


def positive(value: str) -> float:
    number = speed(value)
    if not number:
        raise argparse.ArgumentTypeError(f"{value!r} is not more than 0")
    return number


def speed(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e6:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number from 0 to 1000000")
    return number


def port(value: str) -> int:
    if not value.isdecimal() or int(value) > 65_535:
        raise argparse.ArgumentTypeError(f"{value!r} is not a port from 0 to 65535")
    return int(value)
