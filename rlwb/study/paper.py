"""``rlwb paper``: all that a paper needs of a run or a sweep, in one folder, each number tied to its file."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlwb.errors import ConfigError
from rlwb.experiment.backtest import read_results
from rlwb.experiment.config import SLOTS, RunConfig
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.report import CAPTIONS, stability_figures
from rlwb.experiment.rolling import rolling_figures, windows_of
from rlwb.experiment.run import RunDirectory, command
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.files import atomic_path, files_below, is_temporary, put_in_place, temporary_folder, write_json, write_text
from rlwb.market.load import source_files
from rlwb.parts import Part, complete
from rlwb.reading import read_table
from rlwb.study import collect, paper_check
from rlwb.study.members import Sweep, is_done
from rlwb.study.paper_content import (
    ABOUT,
    NAMED,
    SETTINGS,
    SOURCE,
    evidence,
    opening,
    remarks,
    rest,
    run_result,
    run_table,
    sweep_result,
    sweep_table,
    verdict,
)
from rlwb.study.paper_document import (
    Block,
    Figures,
    Grid,
    Line,
    Works,
    cited,
    joined,
    latex,
    latex_block,
    markdown,
    markdown_block,
    written,
)
from rlwb.study.sweep import remembered_sweep, sweep_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What of a run is copied, by patterns; what a run does not have is left out.
_COPIED = (
    *("manifest.json", "verdict.json", "audit.json", "orders/*.json", "orders/*.csv", "metrics/*.csv"),
    *("backtest/*.json", "backtest/*.csv", "stress/*.json", "stress/*.csv", "stability/*.csv"),
)
#: What of a run its checksums are of: all that its results come from and are.
_SUMMED = (
    *("config.yaml", "manifest.json", "verdict.json", "audit.json", "origin", "orders", "checkpoints", "metrics"),
    *("backtest", "stress", "stability", "code"),
)


def launch_paper(path: Path, to: Path | None = None, *, echo: Callable[[str], None] = print) -> Path:
    """Do what ``rlwb paper`` asks for: write the folder of a finished run or of a sweep, and return it.

    Parameters
    ----------
    path
        The directory of a run, which may be an evaluation or one over windows, or of a sweep; it stays as it is.
    to
        A new folder, or one that was written by this before; by default beside `path`, with ``-paper`` after its name.

    Raises
    ------
    ConfigError
        Where there is no finished run or collected sweep, or `to` holds something else.
    """
    path = path.expanduser().resolve()
    to = (path.with_name(f"{path.name}-paper") if to is None else to.expanduser()).resolve()
    if to.exists() and not (to / paper_check.MADE).is_file() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"{to} holds something else than a paper's folder; name another with --to.")
    if to == path or path.is_relative_to(to):
        raise ConfigError(f"{to} holds {path} itself; name another folder with --to.")
    to.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(to.parent, to.name) as new:
        made = _of_run(path, new) if RunDirectory(path).is_run() else _of_sweep(path, new)
        _write(new, *made, run=path, to=to)
        new.chmod(0o755)  # a temporary folder is its owner's alone
        put_in_place(to, new)
    echo(f"paper: {to}")
    echo(f"read {to / 'paper.md'}, compile paper.tex there, and check with: python {shlex.quote(str(to / 'check.py'))}")
    return to


Made = tuple[Figures, Line, list[Block]]


def _of_run(path: Path, folder: Path) -> Made:
    run = RunDirectory.open(path)
    if not is_done(run):
        raise ConfigError(f"{run.path} is not finished ({run.describe()}). {run.how_to_resume()}")
    config = run.config
    _copy(run.path, folder, "")
    _copy_code(run, folder)
    _describe(run, config, folder, [config.seed], run.manifest.get("command", []))
    figures = Figures(folder)
    pictures = rolling_figures(run, config) if config.split.rolling else stability_figures(run, config)
    captions = {name: CAPTIONS.get(name, name.replace("_", " ")) for name in [*CAPTIONS, *pictures] if name in pictures}
    _draw(pictures, folder)
    blocks = [
        *opening(figures, config, run_result(figures, config)),
        *verdict(figures),
        *run_table(figures, config),
        *remarks(figures),
        *evidence(figures),
        *rest(figures, run, config, captions),
    ]
    return figures, [figures.leaf(ABOUT, "name"), ": a policy for order execution, and what it gains"], blocks


def _of_sweep(path: Path, folder: Path) -> Made:
    if not sweep_folder(path).is_ours:
        raise ConfigError(f"{path} holds neither a run nor a sweep; correct the path.")
    sweep = remembered_sweep(path)
    runs = {name: RunDirectory(path / name) for name in sweep.members}
    done = {name: read_results(run) for name, run in runs.items() if is_done(run)}
    if not done or not (path / "seeds.csv").is_file():
        raise ConfigError(f"{path} has no table yet; {sweep_folder(path).resume()} makes it.")
    for name in ("sweep.csv", "seeds.csv", "improvement.csv"):
        _copy_file(path / name, folder / SOURCE / name)
    first = runs[next(iter(done))]
    config = first.config
    _copy(first.path, folder, "")
    _copy_code(first, folder)
    seeds = read_table(path / "seeds.csv", numbers=["mean", "mean_lo", "mean_hi"], texts=["policy", "metric"])
    seeds["setting"] = seeds["setting"].fillna("")  # of the rules, which are the same in all, and of the only one
    notes = collect.notes_of(sweep, done, seeds, [name for name in sweep.members if name not in done])
    _describe(first, config, folder, list(sweep.seeds), ["rlwb", "sweep", *sweep.words()], sweep, notes)
    figures = Figures(folder)
    pictures = dict(zip(("seeds", "learning_curves"), collect.figures_of(sweep, runs, done, seeds), strict=False))
    _draw({name: figure for name, (figure, _) in pictures.items()}, folder)
    blocks = [
        *opening(figures, config, sweep_result(figures, seeds)),
        *sweep_table(figures, sweep, seeds),
        *rest(figures, first, config, {name: told for name, (_, told) in pictures.items()}, sweep),
    ]
    return figures, [figures.leaf(ABOUT, "name"), ": policies for order execution over several seeds"], blocks


# What lies in the folder.


def _copy(run: Path, folder: Path, name: str) -> None:
    for pattern in _COPIED:
        for file in sorted(run.glob(pattern)):
            _copy_file(file, folder / SOURCE / name / file.relative_to(run))


def _copy_file(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)


def _copy_code(run: RunDirectory, folder: Path) -> None:
    """Copy the configuration and, beside it, the code of the user's own that it names."""
    _copy_file(run.path / "config.yaml", folder / "config.yaml")
    if (run.path / "code").is_dir():
        shutil.copytree(run.path / "code", folder / "code", ignore=shutil.ignore_patterns("__pycache__"))


def _describe(
    run: RunDirectory,
    config: RunConfig,
    folder: Path,
    seeds: Sequence[int],
    words: Sequence[str],
    sweep: Sweep | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write the settings, what the documents tell of the run beside its tables, its instruments and its bars."""
    write_json(folder / SETTINGS, settings_rows(config, () if sweep is None else sweep.settings[0].grid))
    source = config.market.settings.get("source")
    bars = Path(source) if source else None
    sums = []
    if bars is not None and bars.exists():
        names = {
            file: file.relative_to(bars.parent) if file.is_relative_to(bars.parent) else file.name
            for file in source_files(bars)
        }
        sums = [(paper_check.sha256(file), str(name)) for file, name in names.items()]
        write_text(folder / "bars.sha256", "".join(f"{known}  {name}\n" for known, name in sums))
    counts = _instruments(run)
    with atomic_path(folder / "instruments.csv") as target:
        counts.to_csv(target)
    verb = "run" if sweep is None else "sweep"
    made = shlex.join(["rlwb", *words[1:]])
    grid = [] if sweep is None else [word for one in sweep.asked["grid"] for word in ("--grid", one)]
    asked = [] if sweep is None else [*grid, "--seeds", str(sweep.asked["seeds"])]
    there = ("--run-dir", "again")
    write_json(
        folder / ABOUT,
        {
            "name": run.path.name if sweep is None else run.path.parent.name,
            "seeds": ", ".join(map(str, seeds)),
            "trainings": len(seeds),
            "source": bars.name if bars is not None else f"the embedded market {config.market.name}",
            "bars": len(sums),
            "instruments": len(counts),
            "names": ", ".join(map(str, counts.index[:NAMED])),
            "level": f"{100 * config.backtest.confidence:g}",
            "notes": list(notes),
            "made": made,
            "again": command("rerun", str(run.path)) if run.origin else command(verb, "config.yaml", *asked, *there),
        },
    )


def _instruments(run: RunDirectory) -> pd.DataFrame:
    """Return the number of orders of each instrument by part; no rows where the run keeps no orders of its own."""
    found = {}
    for part in ("train", "valid", "test"):
        path = run.orders / f"{part}.parquet"
        if path.is_file():
            found[part] = read_table(path, "order_id")["instrument"].astype(str).value_counts()
    return pd.DataFrame(found).fillna(0).astype(int).sort_index().rename_axis("instrument")


def settings_rows(config: RunConfig, grid: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return dotted name to value, value and default as texts, and whether it was changed, of all settings.

    The default of a part's own setting is that of the part which is there; of a setting that must be given there is
    none. `grid` names those of which a sweep has several values.
    """
    tree, plain = config.as_dict(), RunConfig().as_dict()
    for slot, kind in SLOTS.items():
        part = getattr(config, slot)
        if isinstance(part, Part) and part.name != plain[slot]["name"]:
            plain[slot] = {"name": plain[slot]["name"], **_defaults(kind, part)}
    rows = {}
    known = set(leaves(plain))
    for name in leaves(tree):
        value, default = value_at(tree, name), value_at(plain, name) if name in known else None
        is_changed = name not in known or value != default or name in grid
        shown = "several" if name in grid else _setting(name, value)
        text = _setting(name, default) if name in known else ""
        rows[name] = {"value": value, "text": shown, "default": text, "changed": is_changed}
    return rows


def _setting(name: str, value: Any) -> str:
    """Return a value in words; of parts only those settings that are not their defaults."""
    if name in SLOTS:
        parts = [Part.model_validate(one) for one in value]
        value = [_own(one.name, one.settings, _defaults(SLOTS[name], one)) for one in parts]
    return dump_yaml(value, flow=True).strip()


def _own(name: str, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> Any:
    own = {key: one for key, one in settings.items() if key not in defaults or one != defaults[key]}
    return {"name": name, **own} if own else name


def _defaults(kind: str, part: Part) -> dict[str, Any]:
    """Return the defaults of a part's settings; of one that needs some, none."""
    try:
        return dict(complete(kind, Part(name=part.name)).settings)
    except ConfigError:
        return {}


def _draw(pictures: Mapping[str, Figure], folder: Path) -> None:
    from rlwb.evaluation.plots import save_figure

    for name, figure in pictures.items():
        save_figure(figure, folder / "figures" / name, kinds=("pdf", "svg"))


def _write(folder: Path, figures: Figures, title: Line, blocks: Sequence[Block], *, run: Path, to: Path) -> None:
    """Write the documents, what ties their numbers to files, the check, and the checksums."""
    works = Works.read(Path(__file__).with_name("references.bib"))
    table = next(one for one in blocks if isinstance(one, Grid))
    documents = {
        "paper.md": markdown(title, blocks, works),
        "paper.tex": latex(title, blocks, {table.label: "table.tex"}),
        "table.md": joined(markdown_block(table, works)),
        "table.tex": joined(latex_block(table)),
    }
    for name, segments in documents.items():
        write_text(folder / name, written(segments, figures, Path(name).suffix))
    write_text(folder / "references.bib", "\n\n".join(works.entries[key] for key in cited(blocks)) + "\n")
    shutil.copyfile(paper_check.__file__, folder / "check.py")
    place = Path(*[".."] * len(to.relative_to(common := _common(run, to)).parts)) / run.relative_to(common)
    made = {"run": str(place), "figures": figures.found, "documents": documents}
    write_json(folder / paper_check.MADE, made)
    files = [file for one in _SUMMED for file in _summed(run, one)]
    members = [*(one.parent for one in run.glob("*/status.json")), *(one.path for one in windows_of(RunDirectory(run)))]
    files += [file for member in members for one in _SUMMED for file in _summed(member, one)]
    files += [
        run / name for name in ("sweep.yaml", "sweep.csv", "seeds.csv", "improvement.csv") if (run / name).is_file()
    ]
    _write_sums(folder / paper_check.RUN_SUMS, run, files)
    _write_sums(folder / paper_check.SUMS, folder, [one for one in files_below(folder) if one.name not in documents])


def _common(one: Path, other: Path) -> Path:
    return next(parent for parent in one.parents if other.is_relative_to(parent))


def _summed(run: Path, name: str) -> list[Path]:
    path = run / name
    found = files_below(path) if path.is_dir() else [path] if path.is_file() else []
    return [one for one in found if not is_temporary(one.name) and "__pycache__" not in one.parts]


def _write_sums(path: Path, folder: Path, files: Iterable[Path]) -> None:
    names = sorted({str(file.relative_to(folder)) for file in files})
    write_text(path, "".join(f"{paper_check.sha256(folder / name)}  {name}\n" for name in names))
