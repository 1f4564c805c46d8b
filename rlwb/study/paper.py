"""``rlwb paper``: all that a paper needs of a run or a sweep, in one folder, each number tied to its file."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlwb.errors import ConfigError
from rlwb.evaluation.metrics import METRICS, wide
from rlwb.evaluation.tables import shown_metrics
from rlwb.execution import ExecutionRules
from rlwb.experiment.backtest import read_results
from rlwb.experiment.config import SLOTS, RunConfig
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.report import CAPTIONS, stability_figures
from rlwb.experiment.rolling import rolling_figures
from rlwb.experiment.run import RunDirectory, command
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.files import atomic_path, files_below, is_temporary, put_in_place, temporary_folder, write_json, write_text
from rlwb.market.load import source_files
from rlwb.parts import Part, complete
from rlwb.reading import read_json, read_table
from rlwb.study import collect, paper_check
from rlwb.study.members import Sweep, is_done
from rlwb.study.paper_document import (
    Block,
    Cite,
    Code,
    Commands,
    Figures,
    Grid,
    Heading,
    Items,
    Line,
    Paragraph,
    Picture,
    Piece,
    Works,
    cited,
    joined,
    latex,
    latex_block,
    markdown,
    markdown_block,
    written,
)
from rlwb.study.paper_methods import method
from rlwb.study.sweep import remembered_sweep, sweep_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Where copies of the tables lie that numbers come from.
_SOURCE = "source"
#: What of a run is copied, by patterns; what a run does not have is left out.
_COPIED = (
    *("manifest.json", "audit.json", "orders/*.json", "orders/*.csv", "metrics/*.csv", "backtest/*.json"),
    *("backtest/*.csv", "stress/*.csv", "stability/*.csv"),
)
#: What of a run its checksums are of: all that its results come from and are.
_SUMMED = (
    "config.yaml",
    "manifest.json",
    "audit.json",
    "origin",
    "orders",
    "checkpoints",
    "metrics",
    "backtest",
    "code",
)
_RUN_TABLE, _SETTINGS, _ABOUT = f"{_SOURCE}/backtest/metrics.csv", "settings.json", "about.json"
#: So many instruments are named.
_NAMED = 12
_INTERVAL = "interval, bp"
_ABOUT_ORDERS = (
    "An order is an amount of one instrument to buy or to sell within a part of a day. It can be split over that time "
    "evenly, which is called TWAP; here a trained policy decides at each step how much to trade. The price advantage "
    "(PA) of an order is how much better its average price is than its benchmark, here {benchmark}, in basis points, "
    "hundredths of a percent (bp): above 0 is better, for buys and for sells. TWAP as a benchmark is the mean price of "
    "the order's window. Every order counts the same."
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
        *_opening(figures, config, _run_result(figures, config)),
        *_quoted(figures, "What the run says"),
        *_run_table(figures, config),
        *_remarks(figures),
        *_rest(figures, run, config, captions),
    ]
    return figures, [figures.leaf(_ABOUT, "name"), ": a policy for order execution, and what it gains"], blocks


def _of_sweep(path: Path, folder: Path) -> Made:
    if not sweep_folder(path).is_ours:
        raise ConfigError(f"{path} holds neither a run nor a sweep; correct the path.")
    sweep = remembered_sweep(path)
    runs = {name: RunDirectory(path / name) for name in sweep.members}
    done = {name: read_results(run) for name, run in runs.items() if is_done(run)}
    if not done or not (path / "seeds.csv").is_file():
        raise ConfigError(f"{path} has no table yet; {sweep_folder(path).resume()} makes it.")
    for name in ("sweep.csv", "seeds.csv", "improvement.csv"):
        _copy_file(path / name, folder / _SOURCE / name)
    first = runs[next(iter(done))]
    config = first.config
    _copy(first.path, folder, "")
    _copy_code(first, folder)
    _describe(first, config, folder, list(sweep.seeds), ["rlwb", "sweep", *sweep.words()], sweep)
    figures = Figures(folder)
    seeds = read_table(path / "seeds.csv", numbers=["mean", "mean_lo", "mean_hi"], texts=["policy", "metric"])
    seeds["setting"] = seeds["setting"].fillna("")  # of the rules, which are the same in all, and of the only one
    pictures = dict(zip(("seeds", "learning_curves"), collect.figures_of(sweep, runs, done, seeds), strict=False))
    _draw({name: figure for name, (figure, _) in pictures.items()}, folder)
    blocks = [
        *_opening(figures, config, _sweep_result(figures, seeds)),
        *_sweep_table(figures, sweep, seeds),
        *_rest(figures, first, config, {name: told for name, (_, told) in pictures.items()}, sweep),
    ]
    return figures, [figures.leaf(_ABOUT, "name"), ": policies for order execution over several seeds"], blocks


# What lies in the folder.


def _copy(run: Path, folder: Path, name: str) -> None:
    for pattern in _COPIED:
        for file in sorted(run.glob(pattern)):
            _copy_file(file, folder / _SOURCE / name / file.relative_to(run))


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
) -> None:
    """Write the settings, what the documents tell of the run beside its tables, its instruments and its bars."""
    write_json(folder / _SETTINGS, settings_rows(config, () if sweep is None else sweep.settings[0].grid))
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
    write_json(
        folder / _ABOUT,
        {
            "name": run.path.name if sweep is None else run.path.parent.name,
            "seeds": ", ".join(map(str, seeds)),
            "trainings": len(seeds),
            "source": bars.name if bars is not None else f"the embedded market {config.market.name}",
            "bars": len(sums),
            "instruments": len(counts),
            "names": ", ".join(map(str, counts.index[:_NAMED])),
            "level": f"{100 * config.backtest.confidence:g}",
            "made": made,
            "again": command(verb, "config.yaml", *asked, "--run-dir", "again"),
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
    members = sorted(run.glob("*/status.json"))
    files += [file for member in members for one in _SUMMED for file in _summed(member.parent, one)]
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


# What the documents say.


def _opening(figures: Figures, config: RunConfig, result: Line) -> list[Block]:
    rules = config.execution.rules
    return [
        Paragraph([_ABOUT_ORDERS.format(benchmark=rules.benchmark_title)]),
        Paragraph(result),
        Heading("Results"),
    ]


def _run_result(figures: Figures, config: RunConfig) -> Line:
    """Return the result of the chosen checkpoints in a sentence."""
    rules = config.execution.rules
    own = "pa_net" if rules.have_costs else "pa"
    key = {"policy": "checkpoints", "metric": own}

    def at(column: str, form: str | None = None) -> int:
        return figures.cell(_RUN_TABLE, key, column, form)

    costs = " after costs" if rules.have_costs else ""
    line: list[Piece] = ["On ", at("orders", ",.0f"), " test orders of ", at("days", ",.0f"), " days the "]
    line += [at("title"), f" of one training have a mean PA{costs} of ", at("estimate", ".2f"), " bp"]
    line += _span(figures, at("lo", ".2f"), at("hi", ".2f"), "interval over days")
    return [
        *(*line, ". The training has one seed, ", figures.leaf(_ABOUT, "seeds"), "; "),
        "nothing here tells how another seed would differ.",
    ]


def _span(figures: Figures, lo: int, hi: int, what: str) -> Line:
    """Return an interval in words; where there is none, that."""
    if figures.found[lo]["text"] == paper_check.ABSENT:
        return [f" (too few for an {what})"]
    return [", with a ", figures.leaf(_ABOUT, "level"), f" % {what} of [", lo, ", ", hi, "] bp"]


def _sweep_result(figures: Figures, seeds: pd.DataFrame) -> Line:
    """Return the result of each setting's trainings in a sentence."""
    line: list[Piece] = []
    chosen = seeds[(seeds["policy"] == "checkpoints") & (seeds["metric"] == "pa")]
    for setting in chosen["setting"]:
        key = {"setting": setting, "policy": "checkpoints", "metric": "pa"}

        def at(column: str, form: str | None = ".2f", key: dict[str, Any] = key) -> int:
            return figures.cell(f"{_SOURCE}/seeds.csv", key, column, form)

        named: Line = [" of the setting ", at("title", None)] if len(chosen) > 1 else []
        line += [at("seeds", ",.0f"), " trainings", *named, ", which differ in their seed alone, have on "]
        line += [at("days", ",.0f"), " test days a mean PA of ", at("mean"), " bp"]
        line += _span(figures, at("mean_lo"), at("mean_hi"), "interval for another seed and other days")
        line += [". The mean of the middle half of them is ", at("iqm"), " bp"]
        line += [*_span(figures, at("iqm_lo"), at("iqm_hi"), "interval"), ". "]
    return line


def _number(figures: Figures, file: str, row: Mapping[str, Any], column: str, metric: str) -> Line:
    """Return a cell as people read it: shares in percent."""
    if METRICS[metric].is_share:
        return [figures.cell(file, row, column, ".1f", 100.0)]
    return [figures.cell(file, row, column, ".2f")]


def _ends(figures: Figures, lo: Line, hi: Line) -> Line:
    """Return an interval as a table has it; a hyphen where there is none."""
    first = next(one for one in lo if isinstance(one, int))
    return ["-"] if figures.found[first]["text"] == paper_check.ABSENT else ["[", *lo, ", ", *hi, "]"]


def _percent(metric: str) -> str:
    return " %" if METRICS[metric].is_share else ""


def _run_table(figures: Figures, config: RunConfig) -> list[Block]:
    """Return the table of the headline, each of its numbers out of ``metrics.csv``, and what its columns are."""
    table = pd.read_csv(figures.folder / _RUN_TABLE, keep_default_na=False, na_values=[""])
    with_interval, plain = shown_metrics(wide(table))
    rules = config.execution.rules
    rows = []
    for policy, kind in table.drop_duplicates("policy")[["policy", "kind"]].itertuples(index=False):

        def at(metric: str, column: str = "estimate", policy: str = policy) -> Line:
            return _number(figures, _RUN_TABLE, {"policy": policy, "metric": metric}, column, metric)

        def ends(metric: str, at: Callable[..., Line] = at) -> Line:
            return _ends(figures, at(metric, "lo"), at(metric, "hi"))

        own = {"policy": policy, "metric": "pa"}
        spread: Line = [" ± ", *at("pa", "std_checkpoints")] if kind == "checkpoint" else []
        row: list[Line] = [[figures.cell(_RUN_TABLE, own, "title")], [figures.cell(_RUN_TABLE, own, "n", ",.0f")]]
        row += [[*at("pa"), *spread], ends("pa")]
        row += [[*at(metric), _percent(metric), " ", *ends(metric)] for metric in with_interval]
        row += [[*at(metric), _percent(metric)] for metric in plain]
        rows.append(row)
    header = ["policy", "n", "PA mean ± std, bp", _INTERVAL, *(METRICS[one].title for one in (*with_interval, *plain))]
    caption: Line = [
        "Policies on the same test orders; n is how many checkpoints a row is the mean of, ± their spread."
    ]
    grid = Grid("results", caption, _header(figures, header, rules), rows)
    return [grid, _columns([*with_interval, *plain], rules)]


def _header(figures: Figures, titles: Iterable[str], rules: ExecutionRules) -> list[Line]:
    """Return titles with the intervals' coverage before those of intervals."""
    level = figures.leaf(_ABOUT, "level")
    return [[level, f" % {one}"] if one == _INTERVAL else [rules.name_pa(one)] for one in titles]


def _columns(names: Iterable[str], rules: ExecutionRules) -> Items:
    """Return what the columns of the table are."""
    lines = [f"{METRICS[name].title.removesuffix(', bp')}: {METRICS[name].meaning}." for name in names]
    return Items([[rules.name_pa(line)] for line in lines])


def _sweep_table(figures: Figures, sweep: Sweep, seeds: pd.DataFrame) -> list[Block]:
    """Return the table of a sweep, its numbers out of ``seeds.csv`` and ``improvement.csv``, and what is in it."""
    file, config = f"{_SOURCE}/seeds.csv", sweep.settings[0].config
    better = read_table(figures.folder / _SOURCE / "improvement.csv", numbers=["probability"], texts=["of", "over"])
    extra, plain = collect.shown_metrics(seeds)
    is_twap = "twap" in set(seeds["policy"])
    rows = []
    for setting, policy, kind in seeds.drop_duplicates(["setting", "policy"])[["setting", "policy", "kind"]].to_numpy():
        key = {"setting": setting, "policy": policy}

        def at(column: str, metric: str = "pa", key: dict[str, Any] = key) -> Line:
            return _number(figures, file, {**key, "metric": metric}, column, metric)

        def ends(name: str, at: Callable[..., Line] = at) -> Line:
            return _ends(figures, at(f"{name}_lo"), at(f"{name}_hi"))

        is_trained = kind in ("checkpoint", "last")
        own = {**key, "metric": "pa"}
        count: Line = [figures.cell(file, own, "seeds", ",.0f")] if is_trained else ["-"]
        spread: Line = [" ± ", *at("std_seeds")] if is_trained else []
        row: list[Line] = [[figures.cell(file, own, "title")], count, [*at("mean"), *spread], ends("mean")]
        row += [[*at("iqm")], ends("iqm")] if is_trained else [["-"], ["-"]]
        if is_twap:
            pair = collect.pair_with_twap(better, setting, policy)
            row.append(["-"] if pair is None else _probability(figures, pair))
        row += [[*at("mean", metric), _percent(metric)] for metric in (*extra, *plain)]
        rows.append(row)
    own_title = "setting" if len(sweep.settings) > 1 else "policy"
    header = [own_title, "seeds", "PA mean ± std, bp", _INTERVAL, "PA IQM, bp", _INTERVAL]
    header += ["P(better than TWAP)"] if is_twap else []
    header += [METRICS[one].title for one in (*extra, *plain)]
    caption: Line = [
        "Policies on the same test orders, over seeds; IQM is the mean of the middle half of the trainings",
        Cite(("agarwal2021",)),
        ". Intervals are for another seed and other days",
        Cite(("owen2007",)),
        ".",
    ]
    rules = config.execution.rules
    grid = Grid("results", caption, _header(figures, header, rules), rows)
    told = "P(better than TWAP): share of the trainings that do better than TWAP, a tie counting half."
    return [grid, _columns([*extra, *plain], rules), *([Paragraph([told])] if is_twap else [])]


def _probability(figures: Figures, pair: Mapping[str, Any]) -> Line:
    key, file = {"of": pair["of"], "over": pair["over"]}, f"{_SOURCE}/improvement.csv"
    share, *ends = ([figures.cell(file, key, column, ".2f")] for column in ("probability", "lo", "hi"))
    return [*share, " ", *_ends(figures, *ends)]


def _quoted(figures: Figures, title: str) -> Iterator[Block]:
    """Yield the verdict of the run's report, where there is one."""
    yield from ()


def _remarks(figures: Figures) -> Iterator[Block]:
    """Yield the notes below the headline as they stand in its file."""
    file = f"{_SOURCE}/backtest/headline.json"
    if (figures.folder / file).is_file():
        notes = read_json(figures.folder / file).get("notes", [])
        if notes:
            yield Items([[figures.leaf(file, "notes", at)] for at in range(len(notes))])


def _rest(
    figures: Figures, run: RunDirectory, config: RunConfig, captions: Mapping[str, str], sweep: Sweep | None = None
) -> Iterator[Block]:
    settings = read_json(figures.folder / _SETTINGS)
    yield Heading("Figures")
    for stem, caption in captions.items():
        yield Picture(stem, caption)
    yield Heading("Method")
    needed = ("execution.ticks_per_step", "train.iterations", "train.episodes_per_iteration", "backtest.top")
    numbers = {
        name: figures.leaf(_SETTINGS, name, "value", form=",.0f") for name in (*needed, "backtest.bootstrap_samples")
    }
    manifest = f"{_SOURCE}/manifest.json"
    rules: Piece = figures.leaf(manifest, "rules") if "rules" in run.manifest else config.execution.rules.describe()
    for line in method(config, numbers, rules):
        yield Paragraph(line)
    yield Heading("Data")
    yield from _data_card(figures, run)
    yield Heading("Settings")
    changed = [name for name, one in settings.items() if one["changed"]]
    yield Paragraph(
        ["All settings as they were resolved; those that differ from the defaults come first, with a mark."]
    )
    rows = []
    for name in [*changed, *(name for name in settings if name not in changed)]:
        cells = [figures.leaf(_SETTINGS, name, column) for column in ("text", "default")]
        rows.append([["* " if name in changed else "", name], [cells[0]], [cells[1]]])
    yield Grid(
        "settings", ["Settings; * differs from the default."], [["setting"], ["value"], ["default"]], rows, left=True
    )
    yield Heading("Made by")
    yield from _made_by(figures, run, sweep)


def _data_card(figures: Figures, run: RunDirectory) -> Iterator[Block]:
    """Yield what the data are: source, instruments, bars, parts, and what the check of them found."""
    data, parts = f"{_SOURCE}/orders/data.json", f"{_SOURCE}/orders/summary.csv"
    more = ", …" if len(pd.read_csv(figures.folder / "instruments.csv")) > _NAMED else ""
    many, names = figures.leaf(_ABOUT, "instruments", form=",.0f"), figures.leaf(_ABOUT, "names")
    lines: list[Line] = [
        ["Source: ", figures.leaf(_ABOUT, "source"), *_fingerprint(figures), "."],
        [many, " instruments with orders: ", names, more, "; ", Code("instruments.csv"), " has the orders of each."],
    ]
    if (figures.folder / data).is_file():
        known = read_json(figures.folder / data)
        totals: list[Piece] = []
        for name in known.get("report", {}).get("totals", {}):
            totals += [", " if totals else "", figures.leaf(data, "report", "totals", name, form=",.0f")]
            totals += [f" {name.replace('_', ' ')}"]
        lines += [[*totals, "."]] if totals else []
        if calendar := known.get("calendar"):
            hours: list[Piece] = []
            for at in range(len(calendar["segments"])):
                hours += [", " if at else "", figures.leaf(data, "calendar", "segments", at, 0), "–"]
                hours += [figures.leaf(data, "calendar", "segments", at, 1)]
            minutes = figures.leaf(data, "calendar", "tick_minutes", form="g")
            lines.append(["Bars of ", minutes, " minutes, ", *hours, *_zone(figures, data, calendar), "."])
        found = known.get("report", {}).get("findings", {})
        for kind in found:
            place = ("report", "findings", kind)
            what: Line = [figures.leaf(data, *place, "text"), " (", figures.leaf(data, *place, "effect"), ")"]
            lines.append(
                ["The check of the bars found ", figures.leaf(data, *place, "count", form=",.0f"), " × ", *what, "."]
            )
        if not found:
            lines.append(["The check of the bars found nothing."])
        lines += [["Note: ", figures.leaf(data, "notes", at), "."] for at in range(len(known.get("notes", [])))]
    yield Items(lines)
    if (figures.folder / parts).is_file():
        table = read_table(figures.folder / parts, "part", numbers=["orders"])
        columns = [one for one in ("orders", "instruments", "days", "first", "last") if one in table]
        rows: list[list[Line]] = []
        for part in table["part"]:
            forms = {one: None if one in ("part", "first", "last") else ",.0f" for one in ("part", *columns)}
            rows.append([[figures.cell(parts, {"part": part}, one, form)] for one, form in forms.items()])
        titles = {"first": "first day", "last": "last day"}
        yield Grid("parts", ["Orders by part."], [["part"], *([titles.get(one, one)] for one in columns)], rows)


def _fingerprint(figures: Figures) -> Line:
    manifest = f"{_SOURCE}/manifest.json"
    known = read_json(figures.folder / manifest) if (figures.folder / manifest).is_file() else {}
    if "market" not in known.get("data", {}):
        return []
    files: Line = [", ", Code("bars.sha256")] if (figures.folder / "bars.sha256").is_file() else []
    return [" (fingerprint ", figures.leaf(manifest, "data", "market"), *files, ")"]


def _zone(figures: Figures, data: str, calendar: Mapping[str, Any]) -> Line:
    return [" ", figures.leaf(data, "calendar", "timezone")] if calendar.get("timezone") else []


def _made_by(figures: Figures, run: RunDirectory, sweep: Sweep | None) -> Iterator[Block]:
    """Yield commands, versions, seeds and checksums."""
    manifest = f"{_SOURCE}/manifest.json"
    known = run.manifest
    whose = "run" if sweep is None else "sweep"
    yield Paragraph([f"The {whose} was made by the first command and can be made again by the second, in this folder:"])
    yield Commands([[figures.leaf(_ABOUT, name, is_code=True)] for name in ("made", "again")])
    if (figures.folder / manifest).is_file():
        git = known.get("git") or {}
        commit: Line = [", commit ", figures.leaf(manifest, "git", "commit")] if git.get("commit") else []
        changed: Line = [" with changes that are not in it"] if git.get("changed") else []
        versions: list[Piece] = []
        for name in known.get("packages", {}):
            versions += [f", {name} ", figures.leaf(manifest, "packages", name)]
        yield Paragraph(
            [
                *("Made with rlwb ", figures.leaf(manifest, "rlwb"), *commit, *changed, ", Python "),
                *(figures.leaf(manifest, "python"), *versions, ". Seeds: ", figures.leaf(_ABOUT, "seeds"), "."),
            ]
        )
    yield Paragraph(
        [
            *(
                "Each number and text that comes from a file is listed in ",
                Code("figures.json"),
                " with its file, field ",
            ),
            *("and format. ", Code("python check.py"), " fails where one of them, or a checksum, differs; "),
            *(
                Code("SHA256SUMS"),
                " has the checksums of this folder, ",
                Code("run.sha256"),
                f" those of the {whose}: ",
            ),
            "configuration, orders, checkpoints and tables.",
        ]
    )
