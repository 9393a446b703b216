"""The figures of `benchmarks.bench` as Markdown: `RESULTS.md` with all of them, the README with a few.

    python -m benchmarks.bench_table build/bench.json

puts them there, and beside the table what it was drawn from (`results.json`: figures without documents). The
README's part stands between `<!-- generated: bench -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench_figures import TELLING, Figure

HERE = Path(__file__).parent
README, RESULTS, KEPT = HERE.parent / "README.md", HERE / "RESULTS.md", HERE / "results.json"
PART = re.compile(r"(<!-- generated: bench -->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS = ("", "figure", "size", "value", "aim", "floor in the same run", "x floor")

KIND = "the same kind of machine; PyTorch's present autoscaler was not run"
Result = dict[str, Any]
"""One run: benchmark, arguments, sizes, date, commit, machine, load, seconds, failed (or ""), figures."""


def markdown(results: list[Result]) -> str:
    """All figures, those of one kind below each other so that growth shows, then the runs that gave them."""
    missed = [figure for result in results for figure in figures(result) if figure.missed]
    total = sum(
        figure.at_most is not None or figure.at_least is not None for r in results for figure in figures(r)
    )
    lines = [
        "# Results of the benchmarks",
        "",
        f"`make bench`: {_stamps(results)}. {total - len(missed)} of {total} aims are met, ✗ marks the others.",
        "The floor was measured in the same run on the same machine, where there is one.",
        "",
        *_table(COLUMNS, _rows(results)),
        "",
        "## The runs",
        "",
        *_table(("command", "took", "load before", "date", "commit"), _commands(results)),
    ]
    return "\n".join(lines) + "\n"


def telling(results: list[Result]) -> str:
    """The few rows of the README."""
    rows = []
    for benchmark, what, garm in TELLING:
        found = [
            figure for r in results if r["benchmark"] == benchmark for figure in figures(r) if figure.what == what
        ]
        aimed = [figure for figure in found if figure.at_most is not None or figure.at_least is not None]
        if found:
            figure = (aimed or found)[-1]
            rows.append((f"{what} ({figure.size})", _value(figure), _aim(figure), _floor(figure), garm))
    lines = _table(("", "autoscaler", "aim", "floor in the same run", "GARM"), rows)
    head = f"`make bench`, {_stamps(results)}; [all figures](benchmarks/RESULTS.md). GARM was measured on {KIND}."
    return "\n".join([head, "", *lines, ""])


def with_part(readme: str, results: list[Result]) -> str:
    """The README with its part drawn again. ValueError where it has none."""
    if not PART.search(readme):
        raise ValueError("README.md has no <!-- generated: bench --> part")
    return PART.sub(lambda part: part[1] + telling(results) + part[2], readme)


def figures(result: Result) -> list[Figure]:
    return [Figure(**each) for each in result["figures"]]


def _rows(results: list[Result]) -> Iterator[tuple[str, ...]]:
    for name in dict.fromkeys(result["benchmark"] for result in results):
        mine = [result for result in results if result["benchmark"] == name]
        found = [figure for result in mine for figure in figures(result)]
        for what in dict.fromkeys(figure.what for figure in found):
            for figure in (each for each in found if each.what == what):
                over = f"{figure.value / figure.floor:.3g}" if figure.floor else ""
                yield name, what, figure.size, _value(figure), _aim(figure), _floor(figure), over
        for result in mine:
            if result["failed"]:
                yield name, "**failed**", f"`{result['arguments']}`", result["failed"], "", "", ""


def _commands(results: list[Result]) -> Iterator[tuple[str, ...]]:
    for result in results:
        command = f"`python -m benchmarks.{result['benchmark']} {result['arguments']}`"
        yield command, f"{result['seconds']:,.0f} s", f"{result['load']:.1f}", result["date"], result["commit"]


def _value(figure: Figure) -> str:
    words = f"{_number(figure.value)}{_unit(figure)}"
    return f"**{words}** ✗" if figure.missed else words


def _aim(figure: Figure) -> str:
    if figure.at_most is not None:
        return f"≤ {_number(figure.at_most)}{_unit(figure)}" if figure.at_most else "0"
    return f"≥ {_number(figure.at_least)}{_unit(figure)}" if figure.at_least is not None else ""


def _floor(figure: Figure) -> str:
    return f"{_number(figure.floor)}{_unit(figure)} ({figure.floor_is})" if figure.floor is not None else ""


def _unit(figure: Figure) -> str:
    return f" {figure.unit}" if figure.unit not in ("", "%", "/s") else figure.unit


def _number(value: float) -> str:
    """Three digits, or all of a large whole number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _stamps(results: Iterable[Result]) -> str:
    """Dates, commits and machines, each once."""
    results = list(results)
    sizes = " and ".join(dict.fromkeys(f"{result['sizes']} sizes" for result in results))
    dates = sorted({result["date"][:10] for result in results})
    commits = ", ".join(dict.fromkeys(result["commit"] for result in results))
    machines = "; ".join(dict.fromkeys(result["machine"] for result in results))
    period = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return f"{period}, commit {commits}, {machines}, {sizes}"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    columns = tuple(columns)
    lines = [columns, ("---",) * len(columns), *rows]
    return [f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in line)} |" for line in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what `python -m benchmarks.bench` wrote")
    results = json.loads(parser.parse_args().file.read_text(encoding="utf-8"))["runs"]
    kept = [{key: value for key, value in result.items() if key != "document"} for result in results]
    KEPT.write_text(json.dumps({"runs": kept}, indent=1) + "\n", encoding="utf-8")
    RESULTS.write_text(markdown(kept), encoding="utf-8")
    README.write_text(with_part(README.read_text(encoding="utf-8"), kept), encoding="utf-8")
    print(f"written: {RESULTS}, {README}, {KEPT}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
