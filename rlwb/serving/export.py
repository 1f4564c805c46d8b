"""``rlwb export``: a checkpoint of a run as a bundle."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

import rlwb
from rlwb.errors import BundleError, CheckpointError, ConfigError
from rlwb.execution import OrderBatch
from rlwb.experiment.config import HeadConfig, RunConfig
from rlwb.experiment.own_code import keep_code, require_trust
from rlwb.experiment.run import RunDirectory
from rlwb.files import new_folders, put_in_place, temporary_folder
from rlwb.learner import Learner
from rlwb.market import MarketFeatures
from rlwb.market.feature_registry import find_feature
from rlwb.packages import require_packages
from rlwb.parts import Part, complete
from rlwb.reading import read_json, reading
from rlwb.record import TrainingRecord
from rlwb.seeds import generator
from rlwb.serving.bundle import PLACES, open_bundle, own_parts_of, split_tensors
from rlwb.serving.card import own_result, render_card
from rlwb.serving.cases import record_cases, unpack_observations
from rlwb.serving.conversion import convert_state, read_state
from rlwb.serving.drift import training_statistics
from rlwb.serving.live import refuse_across
from rlwb.serving.spec import (
    CARD,
    CASES,
    FORMAT,
    SPEC,
    WEIGHTS,
    Bars,
    BundleSpec,
    NormaliserValues,
    Origin,
    Seen,
    Window,
    read_spec,
    sha256,
    write_spec,
)

if TYPE_CHECKING:
    from rlwb.experiment.workbench import Workbench

_PACKAGES = ("torch", "numpy", "tianshou", "onnx", "onnxruntime", "safetensors")
_LEVELS = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_MOST_WINDOWS = 20


@dataclass(frozen=True)
class Exported:
    """A policy, and all that its bundle tells of it.

    Attributes
    ----------
    bench
        The parts of its run.
    learner, features
        The policy, and the features normalised as in its training.
    record
        What it was trained for.
    train, test
        Orders.
    origin
        Where it is from.
    headline, own, caveats
        The table of the run's backtest, the policy's own result in words, and which rules could not act.
    conversion
        How its weights were converted, None for those of the run.
    """

    bench: Workbench
    learner: Learner
    features: MarketFeatures
    record: TrainingRecord
    train: OrderBatch
    test: OrderBatch
    origin: Origin
    headline: str
    own: str
    caveats: tuple[str, ...] = ()
    conversion: str | None = None


def export_run(
    path: Path,
    out: Path,
    *,
    checkpoint: str = "best",
    weights: Path | None = None,
    force: bool = False,
    trust_code: bool = False,
    echo: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the policy of a run's checkpoint as a bundle, open it, and return where it is.

    Parameters
    ----------
    path
        The directory of a finished run; with `weights` a configuration will do, of which nothing is trained.
    out
        Where the bundle goes, whole or not at all.
    checkpoint
        ``best`` by validation, ``last``, or the number of an iteration.
    weights
        A file of weights from elsewhere, which take the place of the checkpoint's; see `rlwb.serving.conversion`.
    force
        Replace a bundle that is there.
    trust_code
        Run the code that the run names.

    Raises
    ------
    ConfigError
        When there is no run, its backtest is missing, its features read other instruments, or something else is at
        `out`.
    CheckpointError
        When there is no such checkpoint, or it holds a teacher, which cannot act where the future is not known; when
        `weights` are not those of such a policy, by the name of a key.
    BundleError
        When the policy cannot be put into a bundle.
    """
    import torch

    require_packages("a bundle", "export", "safetensors")
    check_out(out, force=force)
    if weights is not None and path.is_file():
        found = _from_config(path, weights)
    else:
        run = _finished(path)
        require_trust(run.config, given=trust_code)
        torch.set_num_threads(run.config.threads)
        found = _from_run(run, checkpoint, weights)
    echo(f"policy: iteration {found.origin.iteration} of {found.origin.name}. {found.conversion or ''}".rstrip())
    export_policy(found, out, echo=echo)
    return out


def export_policy(found: Exported, out: Path, *, echo: Callable[[str], None] = lambda _: None) -> None:
    """Write a policy as a bundle, whole or not at all, and open it; one that is there is replaced."""
    refuse_across(map(find_feature, found.bench.config.features.columns))
    bench, learner, features = found.bench, found.learner, found.features
    sees, acts = bench.state_interpreter(features), bench.action_interpreter
    learner.check(sees.observation_space, acts.action_space)
    cases, arrays = record_cases(bench, (learner, sees, acts), found.test, generator(bench.config.seed))
    echo(f"cases: {cases.observations} observations, {len(cases.orders)} orders")
    plain, tensors = split_tensors(learner.weights())
    graphs, reason = _graphs(learner, arrays, sees.observation_space)
    config = served_config(bench.config, learner)
    sessions, rows = bench.sessions, np.unique(found.train.session)
    spec = BundleSpec(
        format=FORMAT,
        rlwb=rlwb.__version__,
        packages=_versions(),
        origin=found.origin,
        config={},
        record=found.record.as_dict(),
        normaliser=NormaliserValues(**features.normaliser.as_dict()),
        calendar=sessions.calendar.as_dict(),
        bars=Bars(fields=list(sessions.fields), halted=sessions.halted is not None, factor=sessions.factor is not None),
        seen=seen_in(bench, found.train),
        statistics=training_statistics(features, sessions, rows, clip=config.features.clip),
        observation=_told(sees.observation_space),
        action=_told(acts.action_space),
        own_parts=own_parts_of(config),
        weights=plain,
        conversion=found.conversion,
        cases=cases,
        onnx=sorted(graphs),
        onnx_reason=reason,
        files={},
    )
    card = render_card(spec, config, headline=found.headline, own=found.own, caveats=found.caveats)
    contents = {WEIGHTS: safetensors_of(tensors), CASES: safetensors_of(arrays), CARD: card.encode(), **graphs}
    echo(f"ONNX: {', '.join(graphs) or reason}")
    write_bundle(out, spec, contents, code=config, check=lambda folder: open_bundle(folder, trust_code=True))


def _from_run(run: RunDirectory, checkpoint: str, weights: Path | None) -> Exported:
    """Return the policy of a run's checkpoint, or with the run's parts one of other weights."""
    from rlwb.experiment.backtest import read_summary
    from rlwb.experiment.orders import load_orders, workbench
    from rlwb.trainer import load_checkpoint

    config = run.config  # the recorded answers are the processor's, whatever it was trained on
    acting = config.model_copy(update={"train": config.train.model_copy(update={"device": "cpu"})})
    bench, file = workbench(run, acting), find_checkpoint(run, checkpoint)
    learner, features = bench.restore(load_checkpoint(file), file)
    assert learner.trained_for is not None, "a restored policy has its record"
    train = bench.align(load_orders(run, bench, "train"))
    test = bench.align(load_orders(run, bench, "test"), bench.objective.middle)
    summary, origin = read_summary(run), _origin(run, config, file)
    rows = summary[summary["kind"].isin(["checkpoint", "last"]) & (summary["iteration"] == origin.iteration)]
    own = own_result(config, rows.iloc[0].to_dict()) if len(rows) else ""
    with reading(run.backtest / "headline.md", "the table of the backtest"):
        headline = (run.backtest / "headline.md").read_text(encoding="utf-8")
    conversion = None
    if weights is not None:
        conversion = convert_state(read_state(weights), learner, str(weights))
        own, origin = _judged(bench, learner, features, test), _no_origin(config, weights)
    return Exported(
        bench,
        learner,
        features,
        learner.trained_for,
        train,
        test,
        origin,
        headline,
        own,
        tuple(read_json(run.backtest / "caveats.json")["caveats"]),
        conversion,
    )


def _from_config(path: Path, weights: Path) -> Exported:
    """Return a policy of a configuration that was trained elsewhere; features are normalised by its training days."""
    import torch

    from rlwb.experiment.own_code import trust
    from rlwb.experiment.workbench import Workbench
    from rlwb.trainer import record_of

    config = RunConfig.load(path)
    trust(config)
    torch.set_num_threads(config.threads)
    bench = Workbench(config)
    bench.check()
    parts, _ = bench.make_orders()
    features = bench.features(parts["train"])
    learner = bench.learner(features)
    conversion = convert_state(read_state(weights), learner, str(weights))
    train, test = bench.align(parts["train"]), bench.align(parts["test"], bench.objective.middle)
    sees, acts = bench.state_interpreter(features), bench.action_interpreter
    record = record_of(bench.simulator, sees, acts, learner)
    own = _judged(bench, learner, features, test)
    return Exported(
        bench,
        learner,
        features,
        record,
        train,
        test,
        _no_origin(config, weights),
        "There is none: the policy was not trained by a run.",
        own,
        tuple(bench.engine.idle_rules(test)),
        conversion,
    )


def _no_origin(config: RunConfig, weights: Path) -> Origin:
    return Origin(name=weights.name, id=None, iteration=None, validation=None, figure=config.judged_by)


def _judged(bench: Workbench, learner: Learner, features: MarketFeatures, orders: OrderBatch) -> str:
    """Return the result of a policy on the test orders in words."""
    from rlwb.evaluation import metric_table, summary
    from rlwb.experiment.backtest import interval_of, judged

    playable = learner, bench.state_interpreter(features), bench.action_interpreter
    made = judged(bench, "policy", "checkpoint", playable, orders)
    table = summary(metric_table({"policy": [made]}, **interval_of(bench.config)))
    return own_result(bench.config, table.iloc[0].to_dict())


def _graphs(
    learner: Learner, arrays: Mapping[str, np.ndarray], space: gym.Space[Any]
) -> tuple[dict[str, bytes], str | None]:
    """Return the ONNX files of a policy, or why there are none."""
    from rlwb.serving.onnx import export_graphs

    obs = unpack_observations(arrays, space)
    if not isinstance(obs, dict):
        return {}, "the observations are no dict of arrays"
    try:
        return export_graphs(learner, obs), None
    except (BundleError, ConfigError) as error:
        return {}, str(error)


def _finished(path: Path) -> RunDirectory:
    """Return the run in a directory, which must have been trained and judged there."""
    from rlwb.experiment.rolling import windows_of
    from rlwb.experiment.stages import BACKTEST

    run = RunDirectory.open(path)
    if windows := windows_of(run):
        raise ConfigError(
            f"{path} has a policy in each of {len(windows)} windows; export one, such as {windows[-1].path}."
        )
    if run.origin is not None:
        raise ConfigError(f"{path} is an evaluation, which judges the policies of another run; export that run.")
    if run.stage(BACKTEST.name).get("state") != "finished":
        raise ConfigError(f"{path} has no backtest yet ({run.describe()}). {run.how_to_resume()}")
    return run


def find_checkpoint(run: RunDirectory, name: str) -> Path:
    """Return a checkpoint of a run: ``best``, ``last``, or by number; an unknown one is a `CheckpointError`."""
    from rlwb.experiment.backtest import choose_checkpoints
    from rlwb.experiment.training import teacher_checkpoints
    from rlwb.trainer import find_resumable, list_checkpoints

    found: Path | None
    if name == "best":
        return choose_checkpoints(run, run.config).chosen[0].path
    if name in ("last", "teacher"):  # restoring a teacher says why it cannot act
        found, _ = find_resumable(teacher_checkpoints(run) if name == "teacher" else run.checkpoints)
    else:
        number = name.removeprefix("checkpoint-").removesuffix(".pt")
        found = list_checkpoints(run.checkpoints).get(int(number)) if number.isdecimal() else None
    if found is None:
        there = [str(one) for one in list_checkpoints(run.checkpoints)]
        few = there if len(there) < 12 else [*there[:5], "…", *there[-5:]]
        raise CheckpointError(
            f"{run.path} has no checkpoint {name}; say best, last or one of {', '.join(few) or 'none'}."
        )
    return found


def served_config(config: RunConfig, learner: Learner) -> RunConfig:
    """Return the part of a run's configuration that its policy is built from, the rest at its defaults."""
    from rlwb.policy.qlib import QlibLearner, QlibRecurrent

    values = {name: getattr(config, name) for name in PLACES}
    values["train"] = config.train.model_copy(update={"device": "cpu", "env": "native"})
    if isinstance(learner, QlibLearner):  # the weights are in the bundle, and not in Qlib's checkpoint any more
        trunk = learner.network.trunk
        assert isinstance(trunk, QlibRecurrent)
        shape = {"hidden": trunk.market.hidden, "output": trunk.width}
        values["algorithm"] = complete("algorithm", Part(name="ppo"))
        values["head"] = HeadConfig(mask_actions=False, even_start=False)  # as in Qlib, whatever the run's heads have
        values["network"] = complete("network", Part(name="qlib_recurrent", **shape))
    return RunConfig().model_copy(update=values)


def write_bundle(
    out: Path,
    spec: BundleSpec,
    contents: Mapping[str, bytes],
    *,
    code: RunConfig | None = None,
    source: Path | None = None,
    check: Callable[[Path], object] = lambda _: None,
) -> None:
    """Write a bundle, whole or not at all; one that is there is replaced.

    Parameters
    ----------
    spec
        Its specification; the hashes of the files, and with `code` the configuration, are put in.
    contents
        The files by path, apart from ``bundle.json``.
    code
        The configuration, whose files of code are copied.
    source
        A bundle, of which the files that `contents` does not name are copied.
    check
        Takes what was written before it gets its name, and raises an error where that shall not be.
    """
    out = out.absolute()
    if source is not None:
        contents = {**{name: (source / name).read_bytes() for name in read_spec(source).files}, **contents}
    try:
        with new_folders(out.parent), temporary_folder(out.parent, out.name) as folder:
            for name, content in contents.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            if code is not None:
                values = keep_code(code, folder)
                spec = spec.model_copy(update={"config": {name: values[name] for name in PLACES}})
            files = sorted(one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file())
            hashes = {name: sha256((folder / name).read_bytes()) for name in files if name != SPEC}
            write_spec(folder, spec.model_copy(update={"files": hashes}))
            check(folder)
            folder.chmod(0o777 & ~_umask())
            put_in_place(out, folder)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}); choose another place.") from error


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def check_out(out: Path, *, force: bool) -> None:
    """Refuse a place where something is that a bundle may not replace."""
    if not out.exists() and not out.is_symlink():
        return
    if out.is_symlink() or not (out / SPEC).is_file():
        raise ConfigError(f"{out} exists and is no bundle; choose another place.")
    if not force:
        raise ConfigError(f"{out} holds a bundle already; choose another place, or replace it with --force.")


def safetensors_of(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays and tensors as the content of a safetensors file."""
    from safetensors.torch import save
    from torch import as_tensor

    content: bytes = save(
        {
            name: as_tensor(np.array(value) if isinstance(value, np.ndarray) else value)
            for name, value in sorted(arrays.items())
        }
    )
    return content


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _origin(run: RunDirectory, config: RunConfig, file: Path) -> Origin:
    from rlwb.evaluation import read_validation
    from rlwb.experiment.stages import training_id

    figure, iteration = config.judged_by, int(file.stem)
    log = read_validation(run.metrics / "validation.csv", figure)
    scores = log.loc[log["iteration"] == iteration, figure]
    known = float(scores.iloc[0]) if len(scores) and np.isfinite(scores.iloc[0]) else None
    return Origin(name=run.path.name, id=training_id(config), iteration=iteration, validation=known, figure=figure)


def _told(space: gym.Space[Any]) -> dict[str, str]:
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {"space": space}
    return {str(name): repr(part) for name, part in parts.items()}


def seen_in(bench: Workbench, train: OrderBatch) -> Seen:
    """Return what the training orders were."""
    table, steps = train.table, bench.engine.num_steps(train)
    volume = bench.engine.benchmarks(train).volume
    share = train.amount[volume > 0] / volume[volume > 0]
    calendar = bench.sessions.calendar
    pairs, counts = np.unique(np.stack([train.start, train.latest_end]), axis=1, return_counts=True)
    often = np.argsort(-counts, kind="stable")[:_MOST_WINDOWS]
    windows = [
        Window(start=_clock(calendar, start, False), end=_clock(calendar, end, True), orders=int(count))
        for start, end, count in zip(*pairs[:, often].tolist(), counts[often].tolist(), strict=True)
    ]
    return Seen(
        first=f"{table['date'].min():%Y-%m-%d}",
        last=f"{table['date'].max():%Y-%m-%d}",
        days=int(table["date"].nunique()),
        instruments=int(table["instrument"].nunique()),
        orders=len(train),
        buys=int((train.side > 0).sum()),
        sells=int((train.side < 0).sum()),
        amount=_quantiles(train.amount),
        participation=_quantiles(share),
        steps=(int(steps.min()), int(steps.max())),
        windows=windows,
    )


def _clock(calendar: Any, tick: int, is_end: bool) -> str:
    from rlwb.market.calendar import text_of

    seconds = calendar.tick_start[tick - 1] + calendar.tick_seconds if is_end else calendar.tick_start[tick]
    return text_of(int(seconds))


def _quantiles(values: np.ndarray) -> dict[str, float]:
    if not len(values):
        return {}
    return {f"{level:g}": float(value) for level, value in zip(_LEVELS, np.quantile(values, _LEVELS), strict=True)}
