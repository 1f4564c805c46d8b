"""What the documents of a paper say: result, verdict, evidence, method, data, settings, and how all was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from rlwb.evaluation.metrics import CHECKPOINTS, METRICS, wide
from rlwb.evaluation.tables import shown_metrics
from rlwb.execution import ExecutionRules
from rlwb.experiment.config import RunConfig
from rlwb.experiment.run import RunDirectory
from rlwb.reading import read_json, read_table
from rlwb.study import collect, paper_check
from rlwb.study.members import Sweep
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
)
from rlwb.study.paper_methods import method

#: Where copies of the tables lie that numbers come from.
SOURCE = "source"
RUN_TABLE, SETTINGS, ABOUT = f"{SOURCE}/backtest/metrics.csv", "settings.json", "about.json"
#: So many instruments are named.
NAMED = 12
_INTERVAL = "interval, bp"
_ORDERS = (
    "An order is an amount of one instrument to buy or to sell within a part of a day. It can be split over that time "
    "evenly, which is called TWAP; here a trained policy decides at each step how much to trade. The price advantage "
    "(PA) of an order is how much better its average price is than its benchmark, here {benchmark}, in basis points, "
    "hundredths of a percent (bp): above 0 is better, for buys and for sells. TWAP as a benchmark is the mean price of "
    "the order's window. Every order counts the same. A checkpoint is the policy as it was after an iteration of its "
    "training. An interval is made by a rule by which "
)


def opening(figures: Figures, config: RunConfig, result: Line) -> list[Block]:
    """Return what an order is and its price advantage, the `result` in a paragraph, and the title of the table."""
    rules = config.execution.rules
    return [
        Paragraph(
            [
                _ORDERS.format(benchmark=rules.benchmark_title),
                figures.leaf(ABOUT, "level"),
                " of a hundred such intervals hold the true value.",
            ]
        ),
        Paragraph(result),
    ]


def run_result(figures: Figures, config: RunConfig) -> Line:
    """Return the result of the chosen checkpoints in a sentence."""
    rules = config.execution.rules
    own = "pa_net" if rules.have_costs else "pa"
    key = {"policy": "checkpoints", "metric": own}

    def at(column: str, form: str | None = None) -> int:
        return figures.cell(RUN_TABLE, key, column, form)

    costs = " after costs" if rules.have_costs else ""
    line: list[Piece] = ["On ", at("orders", ",.0f"), " test orders of ", at("days", ",.0f"), " days the "]
    training = "a training in each window" if config.split.rolling else "one training"
    line += [at("title"), f" of {training} have a mean PA{costs} of ", at("estimate", ".2f"), " bp"]
    line += _span(figures, at("lo", ".2f"), at("hi", ".2f"), "interval over days")
    return [
        *(*line, ". Training has one seed, ", figures.leaf(ABOUT, "seeds"), "; "),
        "nothing here tells how another seed would differ.",
    ]


def _span(figures: Figures, lo: int, hi: int, what: str) -> Line:
    """Return an interval in words; where there is none, that."""
    if figures.found[lo]["text"] == paper_check.ABSENT:
        return [f" (too few of them for an {what})"]
    return [", with a ", figures.leaf(ABOUT, "level"), f" % {what} of [", lo, ", ", hi, "] bp"]


def sweep_result(figures: Figures, seeds: pd.DataFrame) -> Line:
    """Return the result of each setting's trainings in a sentence."""
    line: list[Piece] = []
    chosen = seeds[(seeds["policy"] == "checkpoints") & (seeds["metric"] == "pa")]
    for setting in chosen["setting"]:
        key = {"setting": setting, "policy": "checkpoints", "metric": "pa"}

        def at(column: str, form: str | None = ".2f", key: dict[str, Any] = key) -> int:
            return figures.cell(f"{SOURCE}/seeds.csv", key, column, form)

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


def run_table(figures: Figures, config: RunConfig) -> list[Block]:
    """Return the table of the headline, each of its numbers out of ``metrics.csv``, and what its columns are."""
    table = pd.read_csv(figures.folder / RUN_TABLE, keep_default_na=False, na_values=[""])
    with_interval, plain = shown_metrics(wide(table))
    rules = config.execution.rules
    rows = []
    for policy, kind in table.drop_duplicates("policy")[["policy", "kind"]].itertuples(index=False):

        def at(metric: str, column: str = "estimate", policy: str = policy) -> Line:
            return _number(figures, RUN_TABLE, {"policy": policy, "metric": metric}, column, metric)

        def ends(metric: str, at: Callable[..., Line] = at) -> Line:
            return _ends(figures, at(metric, "lo"), at(metric, "hi"))

        own = {"policy": policy, "metric": "pa"}
        spread: Line = [" ± ", *at("pa", "std_checkpoints")] if kind == "checkpoint" else []
        row: list[Line] = [[figures.cell(RUN_TABLE, own, "title")], [figures.cell(RUN_TABLE, own, "n", ",.0f")]]
        row += [[*at("pa"), *spread], ends("pa")]
        row += [[*at(metric), _percent(metric), " ", *ends(metric)] for metric in with_interval]
        row += [[*at(metric), _percent(metric)] for metric in plain]
        rows.append(row)
    header = ["policy", "n", "PA mean ± std, bp", _INTERVAL, *(METRICS[one].title for one in (*with_interval, *plain))]
    caption: Line = [
        "Policies on the same test orders; n is how many checkpoints a row is the mean of, ± their spread."
    ]
    grid = Grid("results", caption, _header(figures, header, rules), rows)
    return [Heading("Results"), grid, _columns([*with_interval, *plain], rules)]


def _header(figures: Figures, titles: Iterable[str], rules: ExecutionRules) -> list[Line]:
    """Return titles with the intervals' coverage before those of intervals."""
    level = figures.leaf(ABOUT, "level")
    return [[level, f" % {one}"] if one == _INTERVAL else [rules.name_pa(one)] for one in titles]


def _columns(names: Iterable[str], rules: ExecutionRules) -> Items:
    """Return what the columns of the table are."""
    lines = [f"{METRICS[name].title.removesuffix(', bp')}: {METRICS[name].meaning}." for name in names]
    return Items([[rules.name_pa(line)] for line in lines])


def sweep_table(figures: Figures, sweep: Sweep, seeds: pd.DataFrame) -> list[Block]:
    """Return the table of a sweep, its numbers out of ``seeds.csv`` and ``improvement.csv``, and what is in it."""
    file, config = f"{SOURCE}/seeds.csv", sweep.settings[0].config
    better = read_table(figures.folder / SOURCE / "improvement.csv", numbers=["probability"], texts=["of", "over"])
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
    notes = read_json(figures.folder / ABOUT)["notes"]
    return [
        Heading("Results"),
        grid,
        _columns([*extra, *plain], rules),
        *([Paragraph([told])] if is_twap else []),
        Paragraph(["Notes of the sweep:"]),
        Items([[figures.leaf(ABOUT, "notes", at)] for at in range(len(notes))]),
    ]


def _probability(figures: Figures, pair: Mapping[str, Any]) -> Line:
    key, file = {"of": pair["of"], "over": pair["over"]}, f"{SOURCE}/improvement.csv"
    share, *ends = ([figures.cell(file, key, column, ".2f")] for column in ("probability", "lo", "hi"))
    interval = _ends(figures, *ends)
    return share if interval == ["-"] else [*share, " ", *interval]


def verdict(figures: Figures) -> Iterator[Block]:
    """Yield the verdict as the run's report has it, where there is one."""
    file = f"{SOURCE}/verdict.json"
    if (figures.folder / file).is_file():
        reasons = read_json(figures.folder / file)["reasons"]
        mark = figures.leaf(file, "mark")
        yield Heading("Verdict")
        yield Paragraph(["Does the policy get better prices than ", mark, "? ", figures.leaf(file, "answer"), "."])
        lines: list[Line] = []
        for at, reason in enumerate(reasons):
            against: Line = ["This speaks against it: "] if reason["is_against"] else []
            lines.append([*against, figures.leaf(file, "reasons", at, "sentence")])
        yield Items(lines)


def remarks(figures: Figures) -> Iterator[Block]:
    """Yield the notes below the headline as they stand in its file."""
    file = f"{SOURCE}/backtest/headline.json"
    if (figures.folder / file).is_file():
        notes = read_json(figures.folder / file).get("notes", [])
        if notes:
            yield Paragraph(["Notes of the run:"])
            yield Items([[figures.leaf(file, "notes", at)] for at in range(len(notes))])


def evidence(figures: Figures) -> Iterator[Block]:
    """Yield what speaks for and against the result beside it: power, choice of checkpoints, leaks, stress."""
    made = [*_power(figures), *_selection(figures), *_audit(figures), *_stress(figures)]
    if made:
        yield Heading("Evidence")
        yield from made


def _known(figures: Figures, name: str) -> tuple[str, Any]:
    """Return the name of a JSON file among the sources, and its contents; nothing where it is not there."""
    file = f"{SOURCE}/{name}"
    return file, read_json(figures.folder / file) if (figures.folder / file).is_file() else {}


def _power(figures: Figures) -> Iterator[Block]:
    file, known = _known(figures, "backtest/power.json")
    if known.get("detectable_bp") is not None:
        line: list[Piece] = [
            "By how much a naive timing policy gains and loses on the training and validation orders, "
        ]
        line += [figures.leaf(file, "orders", form=",.0f"), " orders on ", figures.leaf(file, "days", form=",.0f")]
        line += [" days tell a gain of such a policy of ", figures.leaf(file, "detectable_bp", form=".1f")]
        line += [" bp or more from nothing in ", figures.leaf(file, "power", form=".0f", scale=100.0), " % of cases"]
        if known.get("days_for_1bp") is not None:
            line += ["; a gain of a single bp would take ", figures.leaf(file, "days_for_1bp", form=",.0f"), " days"]
        yield Paragraph([*line, "."])


def _selection(figures: Figures) -> Iterator[Block]:
    file, known = _known(figures, "backtest/evidence.json")
    if not known:
        return

    def bp(*place: str | int) -> int:
        return figures.leaf(file, *place, form=".2f")

    def count(name: str) -> int:
        return figures.leaf(file, name, form=",.0f")

    line: list[Piece] = [
        "The checkpoints were chosen among ",
        count("candidates"),
        " by validation. On the test orders ",
    ]
    line += ["the chosen have a mean of ", bp("chosen"), " bp, the last checkpoint ", bp("last"), " bp"]
    if known.get("random"):
        line += [", and as many drawn at random ", bp("random", "mean"), " bp (most draws within ", bp("random", "lo")]
        line += [" and ", bp("random", "hi"), ")"]
    line += [". From validation to test the chosen fell by ", bp("seen_shrinkage"), " bp, where choosing the best of "]
    line += ["noise explains ", bp("expected_shrinkage"), ". The rank correlation of validation and test is "]
    line += [bp("rank_correlation"), ", the probability of overfitting ", bp("overfitting_probability")]
    line += [Cite(("bailey2017",)), ", and the p-value against TWAP that counts all ", count("trials"), " trials "]
    yield Paragraph(
        [*line, bp("reality_check_p"), Cite(("hansen2005", "white2000")), ". A hyphen is what has no value."]
    )


def _audit(figures: Figures) -> Iterator[Block]:
    file, known = _known(figures, "audit.json")
    words = {True: "passed", False: "FAILED", None: "could not be made"}
    if checks := known.get("checks"):
        yield Paragraph(["The leak audit looked for knowledge of the future and of test days, and at what was judged:"])
        lines: list[Line] = []
        for at, one in enumerate(checks):
            name, detail = (figures.leaf(file, "checks", at, part) for part in ("name", "detail"))
            lines.append([name, f", {words[one['passed']]}: ", detail, "."])
        yield Items(lines)


def _stress(figures: Figures) -> Iterator[Block]:
    """Yield the chosen checkpoints under each condition of the stress matrix, and what became of the winner."""
    table, verdicts = f"{SOURCE}/stress/conditions.csv", f"{SOURCE}/stress/verdicts.csv"
    if not (figures.folder / table).is_file() or not (figures.folder / verdicts).is_file():
        return
    net = read_table(figures.folder / table, texts=["condition", "policy", "metric"])
    net = net[(net["policy"] == CHECKPOINTS) & (net["metric"] == "pa_net")]
    rows: list[list[Line]] = []
    for condition in read_table(figures.folder / verdicts, "condition")["condition"]:
        if condition not in set(net["condition"]):
            continue
        key = {"condition": condition, "policy": CHECKPOINTS, "metric": "pa_net"}
        pa, *ends = ([figures.cell(table, key, name, ".2f")] for name in ("estimate", "lo", "hi"))
        own = {"condition": condition}
        row: list[Line] = [[figures.cell(verdicts, own, "condition")], pa, _ends(figures, *ends)]
        rows.append([*row, [figures.cell(verdicts, own, "stays", ".2f")], [figures.cell(verdicts, own, "verdict")]])
    header: list[Line] = [["condition"], ["net PA, bp"], _header(figures, [_INTERVAL], ExecutionRules())[0]]
    header += [["winner stays"], ["verdict"]]
    caption = (
        "The chosen checkpoints under changed conditions; then, of the policy that is the best without a change, the "
        "share of resamples of days in which it is the best here, and whether it stays that."
    )
    yield Grid("stress", [caption], header, rows)


def rest(
    figures: Figures, run: RunDirectory, config: RunConfig, captions: Mapping[str, str], sweep: Sweep | None = None
) -> Iterator[Block]:
    """Yield the figures, the method, the data, the settings and how all was made; `captions` by the figures' stems."""
    settings = read_json(figures.folder / SETTINGS)
    yield Heading("Figures")
    for stem, caption in captions.items():
        yield Picture(stem, caption)
    yield Heading("Method")
    needed = ("execution.ticks_per_step", "train.iterations", "train.episodes_per_iteration", "backtest.top")
    numbers = {
        name: figures.leaf(SETTINGS, name, "value", form=",.0f") for name in (*needed, "backtest.bootstrap_samples")
    }
    manifest = f"{SOURCE}/manifest.json"
    rules: Piece = figures.leaf(manifest, "rules") if "rules" in run.manifest else config.execution.rules.describe()
    for line in method(config, numbers, rules, in_blocks=_is_in_blocks(figures)):
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
        cells = [figures.leaf(SETTINGS, name, column) for column in ("text", "default")]
        rows.append([["* " if name in changed else "", name], [cells[0]], [cells[1]]])
    yield Grid(
        "settings", ["Settings; * differs from the default."], [["setting"], ["value"], ["default"]], rows, left=True
    )
    yield Heading("Made by")
    yield from _made_by(figures, run, sweep)


def _is_in_blocks(figures: Figures) -> bool:
    """Tell whether intervals of a run were of blocks of days."""
    path = figures.folder / RUN_TABLE
    table = pd.read_csv(path) if path.is_file() else pd.DataFrame()
    return bool("block_days" in table and (table["block_days"] > 1).any())


def _data_card(figures: Figures, run: RunDirectory) -> Iterator[Block]:
    """Yield what the data are: source, instruments, bars, parts, and what the check of them found."""
    data, parts = f"{SOURCE}/orders/data.json", f"{SOURCE}/orders/summary.csv"
    more = ", …" if len(pd.read_csv(figures.folder / "instruments.csv")) > NAMED else ""
    many, names = figures.leaf(ABOUT, "instruments", form=",.0f"), figures.leaf(ABOUT, "names")
    lines: list[Line] = [
        ["Source: ", figures.leaf(ABOUT, "source"), *_fingerprint(figures), "."],
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
    manifest = f"{SOURCE}/manifest.json"
    known = read_json(figures.folder / manifest) if (figures.folder / manifest).is_file() else {}
    if "market" not in known.get("data", {}):
        return []
    files: Line = [", ", Code("bars.sha256")] if (figures.folder / "bars.sha256").is_file() else []
    return [" (fingerprint ", figures.leaf(manifest, "data", "market"), *files, ")"]


def _zone(figures: Figures, data: str, calendar: Mapping[str, Any]) -> Line:
    return [" ", figures.leaf(data, "calendar", "timezone")] if calendar.get("timezone") else []


def _made_by(figures: Figures, run: RunDirectory, sweep: Sweep | None) -> Iterator[Block]:
    """Yield commands, versions, seeds and checksums."""
    manifest = f"{SOURCE}/manifest.json"
    known = run.manifest
    whose = "run" if sweep is None else "sweep"
    yield Paragraph([f"The {whose} was made by the first command and can be made again by the second, in this folder:"])
    yield Commands([[figures.leaf(ABOUT, name, is_code=True)] for name in ("made", "again")])
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
                *(figures.leaf(manifest, "python"), *versions, ". Seeds: ", figures.leaf(ABOUT, "seeds"), "."),
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
