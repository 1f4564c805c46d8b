"""Turn ``results/speed.json`` into the table that is printed and that docs/speed.md shows."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlwb.files import write_text

RESULTS = Path(__file__).parent / "results" / "speed.json"


def number(value: float | None) -> str:
    """Return three significant digits, with thousands separated; a dash for nothing."""
    if value is None:
        return "–"
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def ratio(row: dict[str, Any]) -> str:
    """Return the median and the range of a ratio."""
    if row["ratio"] is None:
        return "–"
    return f"{number(row['ratio'])}× ({number(row['ratio_min'])}–{number(row['ratio_max'])})"


def goal(row: dict[str, Any]) -> str:
    """Return what a row should reach and whether it does; nothing where there is no goal."""
    if row["goal"] is None:
        return ""
    unit = "×" if row["goal_of"] == "ratio" else f" {row['unit']}"
    said = {True: "met", False: "missed", None: "not measured"}[row["met"]]
    return f"{'≤' if row['goal_is_most'] else '≥'} {row['goal']:,.0f}{unit}, {said}"


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return one Markdown table, with machine and date under it."""
    if not rows:
        raise SystemExit("there are no figures; run make bench first.")
    lines = [
        "| figure | unit | rlwb | other | ratio (range) | against | goal | of the roofline |",
        "|---|---|--:|--:|--:|---|---|--:|",
    ]
    for row in rows:
        share = "" if row["roofline_share"] is None else f"{row['roofline_share']:.0%}"
        cells = [
            row["figure"],
            row["unit"],
            number(row["rlwb"]),
            number(row["peer"]),
            ratio(row),
            row["against"],
            goal(row),
            share,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    first = rows[0]
    lines += ["", f"Medians of {first['rounds']} rounds; {first['machine']}; {first['date']}."]
    return "\n".join(lines)


def insert(text: str, table: str, name: str = "speed") -> str:
    """Return a document with `table` between its two marks of a name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if begin not in text or end not in text:
        raise SystemExit(f"the document lacks the marks {begin} and {end}; put them where the table belongs.")
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    return re.sub(pattern, lambda _: f"{begin}\n{table}\n{end}", text, count=1, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--into", type=Path, help="a document with the marks of the table; prints otherwise")
    args = parser.parse_args()
    if not args.results.exists():
        raise SystemExit(f"{args.results} does not exist; run make bench first.")
    table = markdown(json.loads(args.results.read_text(encoding="utf-8")))
    if args.into is None:
        print(table)
    else:
        write_text(args.into, insert(args.into.read_text(encoding="utf-8"), table))


if __name__ == "__main__":
    main()
