"""``rlwb verify``: every figure of a run computed again from its bars, orders and checkpoints, and compared."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from rlwb.errors import CheckpointError, ConfigError, RlwbError
from rlwb.experiment.backtest import backtest_policies, checkpoint_policy, play
from rlwb.experiment.cells import Disagreement, compare_tables, read_cells, read_csv
from rlwb.experiment.config import RunConfig
from rlwb.experiment.ledger import keep_look
from rlwb.experiment.orders import load_orders, make_orders, workbench
from rlwb.experiment.origin import COPIES
from rlwb.experiment.own_code import require_trust
from rlwb.experiment.policies import kept_policies, require_trust_of_policies
from rlwb.experiment.rolling import pool, windows_of
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, SOURCES, STAGES, TRAIN, file_hashes, settings_of
from rlwb.files import strict_json
from rlwb.reading import read_json

_SHOWN = 20
#: Files that show figures in words, which are others where there are more figures.
_WORDS = tuple(f"headline.{kind}" for kind in ("md", "txt", "json"))


@dataclass
class Verification:
    """Result of computing a run again and comparing it.

    Attributes
    ----------
    run
        The run's directory.
    disagreements
        All that differs by more than rounding (`rlwb.experiment.cells.ROUNDING`).
    values
        How many values were compared.
    rounded
        How many of them differ, but by no more than rounding.
    notes
        What could not be compared, and why.
    """

    run: Path
    disagreements: list[Disagreement] = field(default_factory=list)
    values: int = 0
    rounded: int = 0
    notes: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the findings as people read them."""
        for one in self.disagreements[:_SHOWN]:
            yield str(one)
        more = len(self.disagreements) - _SHOWN
        if more > 0:
            yield f"and {more} more; --json lists them all"
        yield from (f"not compared: {note}" for note in self.notes)
        equal = "all equal to the last bit" if not self.rounded else f"{self.rounded:,} equal up to rounding (1e-9)"
        count = len(self.disagreements)
        found = f"{count:,} disagree{'s' if count == 1 else ''}" if count else equal
        yield f"{self.run}: {self.values:,} values compared, {found}"


def launch_verification(
    path: Path, *, as_json_text: bool = False, trust_code: bool = False, echo: Callable[[str], None] = print
) -> bool:
    """Do what ``rlwb verify`` asks for; return whether all agrees."""
    runs = find_runs(path)
    if not runs:
        raise ConfigError(f"{path} holds no run, nor a folder of runs; name the directory of one.")
    verified = []
    for run in runs:
        require_trust(run.config, given=trust_code)
        require_trust_of_policies(kept_policies(run), given=trust_code)
        verified.append(verify_run(run))
        if not as_json_text:
            for line in verified[-1].lines():
                echo(line)
    agrees = not any(one.disagreements for one in verified)
    if as_json_text:
        echo(strict_json({"agrees": agrees, "runs": verified}))
    return agrees


def find_runs(path: Path) -> list[RunDirectory]:
    """Return the run in a directory, or those in its folders, as a comparison has them."""
    run = RunDirectory(path)
    if run.is_run():
        return [run]
    return [one for folder in sorted(path.glob("*/")) if (one := RunDirectory(folder)).is_run()]


def verify_run(run: RunDirectory) -> Verification:
    """Compute orders, validation and backtest of a run again, in a directory of its own, and compare.

    Bars are read from their source anew, not from what was prepared of them. Compared are the hashes of the files with
    those that the stages noted in the manifest, the orders with those that the settings make, and each row of the
    validation and of the backtest with what its checkpoint or baseline scores on the stored orders. What training alone
    gives, ``metrics/train.csv`` and the weights, is compared by its hash. Of a run of an earlier version, figures that
    it did not write are not compared, and a note names them; one that is lacking now disagrees.
    """
    result = Verification(run.path)
    config, known = run.config, read_json(run.path / "manifest.json")
    if run.state == "running":
        raise ConfigError(f"another process works on {run.path}; verify the run when it is done.")
    if config.split.rolling is not None:
        return _verify_windows(run, config)
    with tempfile.TemporaryDirectory(prefix="rlwb-verify-") as place:
        again = RunDirectory(Path(place) / run.path.name)
        _compare_hashes(run, known, result)
        if run.stage(ORDERS.name).get("state") != "finished":
            result.notes.append("orders and what follows; the stage orders is not finished")
            return result
        if run.origin is not None:  # an evaluation, whose checkpoints another run has scored
            _compare_copies(run, run.origin, result)
            for name in (name for name in COPIES if (run.path / name).is_dir()):
                shutil.copytree(run.path / name, again.path / name)
            result.notes.append("the validation, which is that of the run that is judged")
        make_orders(again, config)
        found = read_json(again.path / "manifest.json")["data"]["market"]
        if known.get("data", {}).get("market") != found:
            stored = known.get("data", {}).get("market")
            result.disagreements.append(Disagreement("manifest.json", None, "data.market", stored, found))
        _compare_folder(run, again, "orders", result)
        if run.origin is None and run.stage(TRAIN.name).get("state") != "finished":
            result.notes.append("validation and backtest; the stage train is not finished")
            return result
        shutil.rmtree(again.orders)
        shutil.copytree(run.orders, again.orders)
        keep_look(run, again)
        try:
            if run.origin is None:
                _score_validation(run, again, result)
            if run.stage(BACKTEST.name).get("state") != "finished":
                result.notes.append("the backtest; its stage is not finished")
                return result
            backtest_policies(again, config, is_strict=False)
        except (RlwbError, RuntimeError) as error:  # the latter where a policy passes the ceiling
            _note(Disagreement("backtest", None, None, "done", f"refused: {error}"), False, result)
        else:
            _compare_folder(run, again, "backtest", result)
    return result


def _compare_copies(run: RunDirectory, origin: RunDirectory, result: Verification) -> None:
    """Compare an evaluation's copies of what it judges with their hashes as they were made."""
    stored = read_json(origin.path / "run.json").get("copies")
    if stored is None:
        result.notes.append(
            "the copies of what is judged; there are no hashes, because an earlier version made the evaluation"
        )
        return
    found = file_hashes(run, COPIES)
    found.pop("origin/run.json", None)
    for name in sorted({*stored, *found}):
        hashes = stored.get(name, "no hash"), found.get(name, "no file")
        _note(Disagreement(name, None, "hash", *hashes), hashes[0] == hashes[1], result)


def _verify_windows(run: RunDirectory, config: RunConfig) -> Verification:
    """Verify the run of each window, and pool their results again."""
    result, windows = Verification(run.path), windows_of(run)
    for window in windows:
        one, place = verify_run(window), window.path.relative_to(run.path).as_posix()
        result.disagreements += [replace(found, file=f"{place}/{found.file}") for found in one.disagreements]
        result.notes += [f"{note} ({place})" for note in one.notes]
        result.values += one.values
        result.rounded += one.rounded
    if run.state != "finished":
        result.notes.append("the pooled results; the run is not finished")
        return result
    with tempfile.TemporaryDirectory(prefix="rlwb-verify-") as folder:
        again = RunDirectory(Path(folder) / run.path.name)
        pool(again, config, windows)
        for name in ("orders", "backtest"):
            _compare_folder(run, again, name, result)
    return result


def _compare_hashes(run: RunDirectory, manifest: Mapping[str, Any], result: Verification) -> None:
    """Compare the run's files with the manifest, and its sources with what the stage orders read."""
    if "files" not in manifest:
        result.notes.append("hashes of files; the manifest has none, because an earlier version made the run")
        return
    finished = [stage for stage in STAGES if run.stage(stage.name).get("state") == "finished"]
    folders = [name for stage in finished for name in stage.outputs]
    stored, found = manifest["files"], file_hashes(run, folders)
    for name in sorted({*stored, *found}):
        if name.partition("/")[0] in folders:
            hashes = stored.get(name, "no hash"), found.get(name, "no file")
            _note(Disagreement(name, None, "hash", *hashes), hashes[0] == hashes[1], result)
    settings = settings_of(ORDERS, run.config)
    for name in SOURCES:
        if name in settings:
            hashes = run.stage(ORDERS.name).get("settings", {}).get(name), settings[name]
            _note(Disagreement("status.json", "orders", name, *hashes), hashes[0] == hashes[1], result)


def _note(one: Disagreement, agrees: bool, result: Verification) -> None:
    result.values += 1
    if not agrees:
        result.disagreements.append(one)


def _score_validation(run: RunDirectory, again: RunDirectory, result: Verification) -> None:
    """Write ``metrics`` of `again` as its checkpoints score on the validation orders; compare it with the run's."""
    import torch

    torch.set_num_threads(run.config.threads)
    bench, files = workbench(again, run.config), read_json(run.path / "manifest.json").get("files")
    valid = bench.align(load_orders(again, bench, "valid"))
    for metrics in sorted(run.metrics.rglob("validation.csv")):
        folder = metrics.parent.relative_to(run.metrics)
        stored, rows = read_csv(metrics).set_index("iteration"), {}
        (again.checkpoints / folder).mkdir(parents=True, exist_ok=True)
        for path in sorted((run.checkpoints / folder).glob("[!.]*.pt")):
            name = path.relative_to(run.path).as_posix()
            if files is not None and name not in files:  # which its hash has told already
                continue
            try:
                policy = checkpoint_policy(bench, path, teacher=folder.name == "teacher")
                iteration = int(path.stem)
                if iteration in stored.index:
                    rows[iteration] = bench.validation_figures(valid, play(bench, policy, valid))
            except (CheckpointError, ValueError) as error:
                result.disagreements.append(Disagreement(name, None, None, "a checkpoint of this run", str(error)))
                continue
            shutil.copyfile(path, again.checkpoints / folder / path.name)
        where = metrics.relative_to(run.path).as_posix()
        if len(rows) < len(stored):
            result.notes.append(f"{len(stored) - len(rows)} rows of {where}, whose checkpoints are not there")
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("iteration")
        (again.metrics / folder).mkdir(parents=True, exist_ok=True)
        _compare_tables(where, stored.loc[list(rows)].reset_index(), table.reset_index(), result=result)
        # What has no checkpoint any more keeps its row, so that the choice is that of the run.
        pd.concat([table, stored.drop(index=list(rows))]).sort_index().to_csv(again.metrics / folder / metrics.name)


def _compare_folder(run: RunDirectory, again: RunDirectory, folder: str, result: Verification) -> None:
    """Compare the files of a folder of two runs, tables cell by cell."""
    stored, found = (
        {path.relative_to(one.path).as_posix(): path for path in (one.path / folder).rglob("[!.]*") if path.is_file()}
        for one in (run, again)
    )
    written = read_json(run.path / "manifest.json").get("files")
    added = [] if written is None else sorted(found.keys() - stored.keys() - written.keys())
    result.notes += [f"{name}, which an earlier version did not write" for name in added]
    more = bool(added)
    for name in sorted({*stored, *found} - {*added}, key=lambda name: (name.endswith(_WORDS), name)):
        if name not in found or name not in stored:
            texts = ("a file", "none") if name in stored else ("none", "a file")
            _note(Disagreement(name, None, None, *texts), False, result)
            continue
        paths = stored[name], found[name]
        try:
            tables = [read_cells(path, one.path) for path, one in zip(paths, (run, again), strict=True)]
        except (ValueError, OSError) as error:
            _note(Disagreement(name, None, None, "a file", f"unreadable: {error}"), False, result)
            continue
        if more and name.endswith(_WORDS):
            result.notes.append(f"{name}, which an earlier version wrote of fewer figures")
        else:
            more |= _compare_tables(name, *tables, result=result)


def _compare_tables(file: str, stored: pd.DataFrame, found: pd.DataFrame, *, result: Verification) -> bool:
    """Compare two tables cell by cell, and add what differs to the result; tell whether `found` has more figures."""
    added: list[str] = []
    if file.endswith((".csv", ".parquet")):
        added = [str(name) for name in found.columns if name not in stored.columns]
        found = found.drop(columns=added)
    key = "name" if file.endswith(".json") else "metric"
    if key in stored and key in found:
        known = found[key].isin(stored[key])
        added += list(dict.fromkeys(found.loc[~known, key].astype(str)))
        found = found[known].reset_index(drop=True)
    if added:
        result.notes.append(f"{', '.join(added)} of {file}, which an earlier version did not write")
    compared = compare_tables(stored, found)
    result.values += compared.values
    result.rounded += compared.rounded
    result.disagreements += compared.cells(file)
    return bool(added)
