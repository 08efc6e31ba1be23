"""The paper's tables from finished runs: ``python -m hyperes.tables DIR... [--table 3] [--out FOLDER]``

DIR is a sweep's folder, or any folder with runs in it. Prints Markdown; with --out writes every table as Markdown, CSV
and LaTeX, and --figures adds Figure 4's points and the geometry of the directions (Figure 2, Tables 5 and 6) as CSV and
plots. Without --table these are the tables of the sweeps that made the runs. Runs that differ in more than the method
are never put into one table. Missing runs are named with the command that makes them.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from hyperes.errors import UserError, command
from hyperes.files import write_text
from hyperes.tables import build, gather, render
from hyperes.tables.build import Sheet
from hyperes.tables.gather import Entry, Job
from hyperes.tables.paper import HYPER_ES, METHODS, TABLES, Table


def chosen(names: Sequence[str] | None) -> list[Table]:
    """The named tables in the paper's order; None: all."""
    return [table for table in TABLES if not names or table.name in names]


def asked_tables(names: Sequence[str] | None, entries: Sequence[Entry], jobs: Sequence[Job]) -> list[Table]:
    """The named tables, or those of the runs' sweeps; runs of no sweep give each table of which they fill two rows."""
    if names:
        return chosen(names)
    sweeps = {sweep for entry in entries for sweep in entry.sweeps} | {job.status.sweep for job in jobs}
    alone = {entry.run.name for entry in entries if None in entry.sweeps}
    return [table for table in TABLES if table.home in sweeps or len(alone & set(table.rows)) > 1]


def sheets(table: Table, entries: Sequence[Entry], jobs: Sequence[Job], reference: str) -> list[Sheet]:
    """The table once for every setting."""
    found = gather.groups(table, entries, jobs)
    apart = gather.separate(found)
    return [build.sheet(table, group, note, reference) for group, note in zip(found, apart, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", metavar="DIR", help="folders with runs, at any depth")
    parser.add_argument("--table", nargs="+", choices=[table.name for table in TABLES], help="which tables")
    parser.add_argument("--reference", default=HYPER_ES, choices=METHODS, help="the row that others are tested against")
    parser.add_argument("--out", type=Path, help="folder for the tables as files")
    parser.add_argument("--figures", action="store_true", help="figures as well (needs --out)")
    parser.add_argument("--published", action="store_true", help="the paper's own cells; needs no DIR")
    parser.add_argument("--store", type=Path, help="the runs' store, where it is not the one their config names")
    arguments = parser.parse_args()

    def work() -> None:
        if arguments.published:
            print("\n".join(filter(None, (render.cited(table) for table in chosen(arguments.table)))), end="")
            return
        if not arguments.folders:
            raise UserError("no folder with runs is named: python -m hyperes.tables DIR...")
        if arguments.figures and arguments.out is None:
            raise UserError("--figures writes files: say where by --out FOLDER")
        if arguments.figures and importlib.util.find_spec("matplotlib") is None:
            raise UserError("--figures needs matplotlib: pip install 'hyperes[plots]'")
        entries, jobs = gather.find(arguments.folders, arguments.store)
        tables = asked_tables(arguments.table, entries, jobs)
        made = {table: sheets(table, entries, jobs, arguments.reference) for table in tables}
        if not any(made.values()):
            names = ", ".join(sorted({entry.run.name for entry in entries})) or "none"
            where = ", ".join(map(str, arguments.folders))
            raise UserError(f"{where}: no rows of a table in there (finished runs: {names}); choose one by --table")
        for table, found in made.items():
            if not found:
                print(f"Table {table.name}: none of its runs is in there\n")
                continue
            text = "\n".join(map(render.markdown, found))
            print(text)
            if arguments.out is not None:
                stem = f"table{table.name}"
                write_text(arguments.out / f"{stem}.md", text)
                write_text(arguments.out / f"{stem}.tex", "\n".join(map(render.latex, found)))
                write_text(arguments.out / f"{stem}.csv", render.csv_text(found))
        if arguments.figures:
            from hyperes.tables import figures  # loads torch

            figures.write(entries, arguments.out)
        if arguments.out is not None:
            print(f"files: {arguments.out}")

    return command(work)


if __name__ == "__main__":
    sys.exit(main())
