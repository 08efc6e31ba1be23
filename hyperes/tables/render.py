"""A sheet as Markdown, LaTeX (with booktabs) and CSV (one line per cell)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from hyperes.comparison import Comparison
from hyperes.tables import origins
from hyperes.tables.build import Cell, Row, Sheet, table_columns
from hyperes.tables.notes import NOT_AVAILABLE
from hyperes.tables.paper import COUNT, HYPER_ES, POINTS, Column, Published, Table, mean_at, published, title_of

NONE = "–"  # a finished run has no such value
OURS, PUBLISHED, DIFFERENCE = "ours", "published", "difference"
CSV_FIELDS = [
    *("table", "backbone", "dataset", "seed", "method", "label", "state", "column", "unit"),
    *("ours", "low", "high", "std", "n", "published", "published_std", "difference"),
    *("test_difference", "test_low", "test_high", "p", "verdict", "keys", "commits"),
]
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def markdown(sheet: Sheet) -> str:
    """Heading, table, notes."""
    head, lines = _grid(sheet)
    rows = [head, ["---"] * len(head), *lines]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    notes = "\n".join(f"- {note}" for note in sheet.notes)
    return f"### {sheet.title}\n\n{table}\n\n{notes}\n"


def cited(table: Table) -> str:
    """What survives of the paper's own table as Markdown, a table for each backbone; "" where nothing does."""
    texts = []
    cells = {
        (backbone, method, metric): cell
        for (name, backbone, method, metric), cell in published().items()
        if name == table.name
    }
    columns = table_columns(table, table.suites)
    for backbone in dict.fromkeys(backbone for backbone, _, _ in cells):
        rows = [["method", *(column.title for column in columns)], ["---"] * (len(columns) + 1)]
        for method in table.rows:
            found = [(cells.get((backbone, method, column.key)), column) for column in columns]
            rows.append(
                [title_of(method), *(_cited(cell, column) if cell else NOT_AVAILABLE for cell, column in found)]
            )
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        told = [
            f"- {label}: {cells[backbone, HYPER_ES, metric].value:+.2f} on average."
            for label, _, metric in table.gains
            if (backbone, HYPER_ES, metric) in cells
        ]
        texts.append(
            "\n".join(
                [
                    f"### Table {table.name}. {table.title}{mean_at(table.samples)}: {backbone}, as published\n",
                    *lines,
                    *(["", *told] if told else []),
                ]
            )
        )
    return "\n\n".join(texts) + "\n" if texts else ""


def latex(sheet: Sheet) -> str:
    """A table environment, the notes as comments."""
    head, lines = _grid(sheet)
    body = [r"\midrule" if line[1] == OURS and line is not lines[0] else None for line in lines]
    rows = []
    for rule, line in zip(body, lines, strict=True):
        rows += [rule] if rule else []
        rows.append(" & ".join(_escaped(cell) for cell in line) + r" \\")
    return "\n".join(
        [
            *(f"% {note}" for note in sheet.notes),
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(sheet.title)}}}",
            rf"\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}",
            r"\toprule",
            " & ".join(_escaped(cell) for cell in head) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def csv_text(sheets: Sequence[Sheet]) -> str:
    """One line per cell of all sheets, numbers unrounded, in the column's unit (points: % of the problems)."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for sheet in sheets:
        for row in sheet.rows:
            for column in sheet.columns:
                writer.writerow(_record(sheet, row, column))
    return stream.getvalue()


def _record(sheet: Sheet, row: Row, column: Column) -> dict[str, object]:
    setting, cell, cited = sheet.setting, row.cells.get(column.key), row.published.get(column.key)
    record: dict[str, object] = {
        "table": sheet.table.name,
        "backbone": setting["backbone"]["name"],
        "dataset": setting["dataset"]["name"],
        "seed": setting["seed"],
        "method": row.method,
        "label": row.label,
        "state": row.state,
        "column": column.key,
        "unit": column.unit,
        "keys": " ".join(run.result["key"] for run in row.runs),
        "commits": " ".join(sorted({commit for run in row.runs for commit in origins.commits(run)})),
    }
    if cell:
        low, high = cell.interval or (None, None)
        record |= {"ours": cell.value, "low": low, "high": high, "std": cell.std, "n": cell.n}
    if cited:
        record |= {"published": cited.value, "published_std": cited.std}
    if cell and cited:
        record["difference"] = round(cell.value - cited.value, 10)
    if row.test and column.key == sheet.tested_on:
        low, high = row.test.interval or (None, None)
        scale = [None if value is None else 100 * value for value in (row.test.difference, low, high)]
        record |= dict(zip(("test_difference", "test_low", "test_high"), scale, strict=True))
        record |= {"p": row.test.p, "verdict": row.test.verdict}
    return record


def _grid(sheet: Sheet) -> tuple[list[str], list[list[str]]]:
    """Head and lines: for every method what is ours, what is published and the difference."""
    tested = any(row.test for row in sheet.rows)
    known_at_all = any(row.published for row in sheet.rows)
    head = ["method", "", *(_head(sheet, column) for column in sheet.columns)]
    head += [f"test against {title_of(sheet.reference)}"] if tested else []
    lines = []
    for row in sheet.rows:
        absent = NONE if row.state == "finished" else row.state
        ours, cited, apart = [row.label, OURS], ["", PUBLISHED], ["", DIFFERENCE]
        for column in sheet.columns:
            cell, known = row.cells.get(column.key), row.published.get(column.key)
            ours.append(_ours(cell, column) if cell else absent)
            cited.append(_cited(known, column) if known else NOT_AVAILABLE)
            apart.append(_number(cell.value - known.value, column, sign=True) if cell and known else "")
        if tested:
            ours.append(_test(row.test) if row.test else "reference" if row.method == sheet.reference else "")
            cited.append("")
            apart.append("")
        lines += [ours] + ([cited] if known_at_all else []) + ([apart] if any(apart[2:]) else [])
    return head, lines


def _head(sheet: Sheet, column: Column) -> str:
    """The column's title, with the number of problems that its accuracies are over."""
    counts = {cell.n for row in sheet.rows if (cell := row.cells.get(column.key)) and cell.n}
    return f"{column.title} (n={counts.pop()})" if len(counts) == 1 and not sheet.table.seeds else column.title


def _ours(cell: Cell, column: Column) -> str:
    text = _number(cell.value, column, sign=column.key == "delta")
    if cell.std is not None:
        text += f" ± {cell.std:.2f}"
    if cell.interval is not None:
        text += f" [{cell.interval[0]:.1f}, {cell.interval[1]:.1f}]"
    return text


def _cited(cell: Published, column: Column) -> str:
    text = _number(cell.value, column, sign=column.key == "delta")
    return text + (f" ± {cell.std:.2f}" if cell.std is not None else "")


def _number(value: float, column: Column, sign: bool = False) -> str:
    value = round(value, 9)  # 1.375 and -1.375 from different sums must not end in different digits
    if column.unit == COUNT:
        return f"{value:+,.0f}" if sign else f"{value:,.0f}"
    if column.unit == POINTS or abs(value) < 100:
        return f"{value:+.2f}" if sign else f"{value:.2f}"
    return f"{value:+,.0f}" if sign else f"{value:,.0f}"


def _test(test: Comparison) -> str:
    text = f"{round(100 * test.difference, 9):+.2f}"
    if test.interval is not None:
        text += f" [{100 * test.interval[0]:+.1f}, {100 * test.interval[1]:+.1f}]"
    if test.p is not None:
        text += f", p = {test.p:.2g}"
    return f"{text}: {test.verdict}"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
