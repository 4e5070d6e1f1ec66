"""Rows as Markdown tables, and the places of a page that they fill."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Rows = list[dict[str, Any]]


def table(rows: Rows) -> str:
    """Rows as aligned Markdown; a column that a row has not is empty there."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(3, len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]

    def line(values: list[str]) -> str:
        return "| " + " | ".join(value.rjust(width) for value, width in zip(values, widths, strict=True)) + " |"

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, cells)])


def cell(value: Any) -> str:
    """A number with three digits, or all of those before the point."""
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return "" if value is None else str(value)


def fill(page: str, places: Mapping[str, str]) -> str:
    """A page with new text between each `<!-- name -->` and the `<!-- end -->` after it."""
    for name, content in places.items():
        place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, found = place.subn(lambda m, content=content: m[1] + content + "\n" + m[2], page)
        assert found == 1, f"the page should have one place <!-- {name} -->"
    return page
