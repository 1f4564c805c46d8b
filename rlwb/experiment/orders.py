"""The stage orders: which orders a run executes."""

from __future__ import annotations

import pandas as pd
from pydantic import BaseModel

from rlwb.execution import read_orders, write_orders
from rlwb.execution.likeness import unlike
from rlwb.experiment.config import RunConfig
from rlwb.experiment.notebook import stage_progress
from rlwb.experiment.origin import on_test_dates
from rlwb.experiment.own_code import require_trust
from rlwb.experiment.run import PROGRESS, RunDirectory, update_manifest
from rlwb.experiment.workbench import Workbench
from rlwb.files import atomic_path, write_json
from rlwb.reading import read_json


def workbench(run: RunDirectory, config: RunConfig | None = None) -> Workbench:
    """Return the parts of a run; prepared bars are kept beside the runs, where all of them find them.

    Raises
    ------
    ConfigError
        When the run names code that is not trusted; see `rlwb.experiment.own_code`.
    """
    config = config or run.config
    require_trust(config)
    return Workbench(config, cache_dir=run.path.parent / ".cache", is_elsewhere=run.origin is not None)


def make_orders(run: RunDirectory, config: RunConfig) -> None:
    """Write ``orders/{train,valid,test,all}.parquet``, ``orders/data.json`` and ``orders/summary.csv``.

    Where dates are locked, ``orders/locked.json`` says which.

    Every order is aligned with its session once, and every part made that needs no features, so that what cannot be
    executed or is refused shows here and not hours later.
    """
    bench = workbench(run, config)
    with stage_progress("step", 4, "orders", run.path / PROGRESS) as progress:
        progress.step({"sessions": f"{len(bench.sessions):,}"})
        bench.check()
        progress.step()
        parts, notes = bench.make_orders() if run.origin is None else judged_orders(run, run.origin, bench)
        progress.step({"orders": f"{sum(len(parts[name]) for name in ('train', 'valid', 'test')):,}"})
        if run.origin is None:
            batches = {name: bench.align(parts[name]) for name in ("train", "valid", "test")}
            notes += unlike(bench.engine, batches)
        progress.step({"test orders": f"{len(parts['test']):,}"})
    if bench.sessions.halted is None:
        notes.append("the data do not say which bars were halted, so none is held back for that")
    asked = {"orders": config.orders.model_dump(mode="json"), "split": config.as_dict()["split"]}
    settings = {**asked, "seed": config.seed, "data": bench.sessions.fingerprint}
    rows = {}
    for name, table in parts.items():
        # A training reads the rows of its orders: how all were asked for must not make another file of the same rows.
        write_orders(run.orders / f"{name}.parquet", table, settings if name == "all" else None)
        rows[name] = {
            "orders": len(table),
            "instruments": table["instrument"].nunique(),
            "days": table["date"].nunique(),
            "first": f"{table['date'].min():%Y-%m-%d}",
            "last": f"{table['date'].max():%Y-%m-%d}",
            "mean_amount": table["amount"].mean(),
        }
    with atomic_path(run.orders / "summary.csv") as path:
        pd.DataFrame.from_dict(rows, orient="index").rename_axis("part").to_csv(path)
    if bench.locked is None:
        (run.orders / "locked.json").unlink(missing_ok=True)
    else:
        first, last = map(str, bench.locked)
        write_json(run.orders / "locked.json", {"first": first, "last": last})
        notes.append(
            f"the dates from {first} to {last} are locked: neither bars nor orders of them are in anything here"
        )
    report = bench.sessions.report
    found = {
        "sessions": repr(bench.sessions),
        "calendar": bench.sessions.calendar.as_dict(),
        "report": report.as_dict(),
        "text": report.as_text(),
        "notes": notes,
    }
    write_json(run.orders / "data.json", found)
    fingerprint = {"market": bench.sessions.fingerprint}
    update_manifest(run, data=fingerprint, bars=report.as_dict())


def judged_orders(
    run: RunDirectory, origin: RunDirectory, bench: Workbench
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return the orders of an evaluation: its test orders, and those of the run that it judges; and notes in words.

    Bars that the checkpoints in `run` were not made for, and test orders that cannot be executed, are refused here,
    before any work. `origin` has the orders that they were trained and chosen on.
    """
    from rlwb.trainer import find_resumable, load_checkpoint

    path, _ = find_resumable(run.checkpoints)
    if path is not None:
        bench.restore(load_checkpoint(path), path)
    table = bench.all_orders
    test, left_out = on_test_dates(table, bench.config)
    bench.align(test)
    own = {part: read_orders(origin.orders / f"{part}.parquet", bench.sessions.calendar) for part in ("train", "valid")}
    return {**own, "test": test}, [*table.attrs.get("notes", ()), *left_out]


class Span(BaseModel):
    """Names and types of locked.json: the first and the last date."""

    first: str
    last: str


def locked_span(run: RunDirectory) -> tuple[str, str] | None:
    """Return the first and the last locked date of a run; None where none is."""
    path = run.orders / "locked.json"
    if not path.exists():
        return None
    found = read_json(path, Span)
    return found["first"], found["last"]


def load_orders(run: RunDirectory, bench: Workbench, part: str) -> pd.DataFrame:
    """Return the order table of one part of the run: ``train``, ``valid``, ``test`` or ``all``."""
    return read_orders(run.orders / f"{part}.parquet", bench.sessions.calendar)
