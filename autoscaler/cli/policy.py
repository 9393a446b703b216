"""What stands behind `autoscaler policy ...`: plain values in, text on the given streams, the exit code out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TextIO

from autoscaler.policy.file import Loaded, PolicyError, Problem, load
from autoscaler.policy.scale_config import Imported, as_yaml, import_scale_config
from autoscaler.policy.schema import policy_schema
from autoscaler.policy.tree import dotted
from scheduling.model import UnixMs


def check(path: str, now_ms: UnixMs, out: TextIO, *, as_json: bool = False) -> int:
    """`policy check FILE`: 0 where the policy can be used, warnings or not; 1 where it cannot."""
    try:
        loaded: Loaded | None = load(path, now_ms)
        errors: tuple[Problem, ...] = ()
    except PolicyError as error:
        loaded, errors = None, error.problems
    warnings = loaded.warnings if loaded else ()
    if as_json:
        document = {"ok": loaded is not None, "file": path, "errors": _problems(errors)}
        _print_json(document | {"warnings": _problems(warnings), **_counts(loaded)}, out)
    else:
        for problem in errors:
            _say(out, f"error: {problem}")
        for problem in warnings:
            _say(out, f"warning: {problem}")
        _say(out, _verdict(path, loaded, len(errors), len(warnings)))
    return 1 if errors else 0


def schema(out: TextIO) -> int:
    """`policy schema`: the JSON Schema, with or without `--json`."""
    _print_json(policy_schema(), out)
    return 0


def import_from(
    path: str, provider: str, repositories: str | None, out: TextIO, err: TextIO, *, as_json: bool = False
) -> int:
    """`policy import-scale-config FILE`: the policy on `out`, what was not carried over on `err`.

    1 where the file is no scale-config, 0 otherwise.
    """
    try:
        imported = import_scale_config(path, provider, repositories)
    except PolicyError as error:
        _say(err, str(error))
        return 1
    if as_json:
        dropped = [{"what": what, "runner_types": names} for what, names in imported.dropped.items()]
        _print_json({"policy": imported.policy, "not_carried_over": dropped, "to_do": imported.to_do}, out)
    else:
        out.write(as_yaml(imported, path))
    _report(imported, err)
    return 0


def _report(imported: Imported, err: TextIO) -> None:
    total = len(imported.policy["runner_types"])
    _say(err, f"imported {total} runner types, {imported.variants} of them variants")
    _say(err, "not carried over:" if imported.dropped else "not carried over: nothing")
    for what, names in imported.dropped.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        _say(err, f"  {len(names)} x {what} ({', '.join(names[:3])}{more})")
    _say(err, "to do:")
    for item in imported.to_do:
        _say(err, f"  {item}")


def _verdict(path: str, loaded: Loaded | None, errors: int, warnings: int) -> str:
    if loaded is None:
        return f"{path}: {_count(errors, 'error')}"
    counts = _counts(loaded)
    held = ", ".join(_count(counts[key], key.rstrip("s").replace("_", " ")) for key in ("providers", "funds"))
    types = _count(counts["runner_types"], "runner type")
    return f"{path}: ok, {held}, {types}; {_count(warnings, 'warning')}; hash {counts['hash']}"


def _counts(loaded: Loaded | None) -> dict[str, Any]:
    if loaded is None:
        return {}
    policy = loaded.policy
    counts = {key: len(getattr(policy, key)) for key in ("providers", "funds", "runner_types")}
    return {"hash": policy.hash, **counts}


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _problems(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    return [
        {"file": each.mark.file, "line": each.mark.line, "path": dotted(each.path), "message": each.text}
        for each in problems
    ]


def _print_json(document: dict[str, Any], out: TextIO) -> None:
    json.dump(document, out, indent=2, ensure_ascii=False)
    out.write("\n")


def _say(out: TextIO, line: str) -> None:
    out.write(line + "\n")
