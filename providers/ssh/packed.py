"""Programs for hosts on which nothing of ours is installed: one text each, made of the modules that it needs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_ROOM = "providers.ssh"
_HEAD = '''\
#!/usr/bin/python3 -I
"""Modules of the autoscaler in one file, for a host where it is not installed. The text of each is below."""
import sys, types

def _module(name, source):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)

for _package in ("providers", "providers.ssh"):
    sys.modules[_package] = types.ModuleType(_package)
'''


@cache
def slots_program() -> bytes:
    """`host`: travels with each call over SSH."""
    return _packed("host", "hardware", "launchers")


@cache
def caller_program() -> bytes:
    """`caller`: what a host that calls us installs once; the daemon serves it."""
    return _packed("caller", "hardware", "launchers", "host")


def _packed(main: str, *modules: str) -> bytes:
    """`modules` in the order in which they need each other."""
    parts = [_HEAD, *(f"_module({f'{_ROOM}.{name}'!r}, {_source(name)})\n\n" for name in modules)]
    return "".join([*parts, f'exec(compile({_source(main)}, "{main}.py", "exec"))\n']).encode()


def _source(name: str) -> str:
    """As a literal that a sponsor can read."""
    text = files(_ROOM).joinpath(f"{name}.py").read_text(encoding="utf-8")
    assert "'''" not in text
    return f"r'''{text}'''"
