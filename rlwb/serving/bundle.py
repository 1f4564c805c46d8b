"""A bundle: a directory with a trained policy, and all that it takes to ask it for decisions without its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlwb.errors import BundleError, CheckpointError, ConfigError, DataError
from rlwb.execution import Engine
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.own_code import own_code
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Learner
from rlwb.market import Calendar, MarketFeatures, Normaliser
from rlwb.packages import require_packages
from rlwb.record import ACTING, TrainingRecord, check_record
from rlwb.serving.parts import ServedParts
from rlwb.serving.precision import expanded
from rlwb.serving.spec import SPEC, WEIGHTS, BundleSpec, OwnPart, check_files, read_spec

if TYPE_CHECKING:
    from torch import nn

    from rlwb.policy.encoder import MarketEncoder

PLACES = (
    *("features", "network", "head", "algorithm", "state_interpreter", "action_interpreter", "objective"),
    *("execution", "seed", "train"),
)
"""Places of a run's configuration that its policy is built from; ``train`` is there for checks of the algorithm's."""

#: What stands in place of a tensor, and of a dict with other names than text.
_TENSOR, _ITEMS = "$tensor", "$items"


@dataclass(frozen=True)
class Bundle:
    """A policy that was read from a bundle.

    Attributes
    ----------
    path
        The bundle's directory.
    spec
        Its specification, ``bundle.json``.
    config
        What the policy is built from; other places of the configuration have their defaults.
    parts
        The parts of that configuration, on a blank panel.
    learner
        The policy, with its weights, on the CPU.
    normaliser
        Statistics of the features.
    calendar
        Trading hours and length of a bar.
    engine
        The step grid and the rules of execution, without any bars.
    action_interpreter
        What the policy's answers mean.
    """

    path: Path
    spec: BundleSpec
    config: RunConfig
    parts: ServedParts
    learner: Learner
    normaliser: Normaliser
    calendar: Calendar
    engine: Engine
    action_interpreter: ActionInterpreter[Any]

    def state_interpreter(self, features: MarketFeatures) -> StateInterpreter[Any]:
        """Return what the policy observes, with these features of the market."""
        return self.parts.state_interpreter(features)

    @cached_property
    def blank_features(self) -> MarketFeatures:
        """Features of the blank panel, for what needs their shape alone."""
        return self.parts.features(normaliser=self.normaliser)

    @property
    def network(self) -> nn.Module | None:
        """The module that answers, None for a learner that keeps none under a name that is known here."""
        from torch import nn

        found = getattr(self.learner, "network", None) or getattr(getattr(self.learner, "algorithm", None), "policy", 0)
        return found if isinstance(found, nn.Module) else None

    @property
    def encoder(self) -> MarketEncoder | None:
        """The network's encoder of bars; None where no bars are read, or the network reads them by other means."""
        from rlwb.policy.encoder import MarketEncoder

        modules = [] if self.network is None else [*self.network.modules()]
        found = [one for one in modules if isinstance(one, MarketEncoder)]
        return found[0] if len(found) == 1 else None

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of a safetensors file of the bundle, by name."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            return load((self.path / name).read_bytes())
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            raise BundleError(f"{self.path / name} cannot be read ({error}); export the bundle again.") from None


def open_bundle(path: str | Path, *, trust_code: bool = False) -> Bundle:
    """Read a bundle, and have its policy answer the recorded cases once more.

    Parameters
    ----------
    path
        The directory.
    trust_code
        Whether parts of a user's own, which the bundle names, may run.

    Raises
    ------
    BundleError
        When a file is missing, too many or not as it was written, the bundle is of another version, it names code that
        is not trusted, or an answer differs from the recorded one, naming case, order and step.
    """
    from rlwb.serving.cases import replay

    bundle = read_bundle(path, trust_code=trust_code)
    replay(bundle)
    return bundle


def read_bundle(path: str | Path, *, trust_code: bool = False) -> Bundle:
    """Read a bundle as `open_bundle` does, without having its policy answer anything."""
    require_packages("a bundle", "serve", "safetensors")
    path = Path(path).absolute()
    spec = read_spec(path)
    check_files(path, spec)
    try:
        config = config_of(path, spec.config)
        _check_own_parts(path, spec, config, trust_code)
        normaliser, calendar = Normaliser.from_dict(spec.normaliser.model_dump()), Calendar(**spec.calendar)
        parts = ServedParts(config, calendar, spec.bars)
        features = parts.features(normaliser=normaliser)
        learner = parts.learner(features)
        _check_record(path, spec, parts, features)
        learner.load_weights(join_tensors(spec.weights, _tensors(path, spec.precision)))
    except (ConfigError, DataError, CheckpointError) as error:
        raise BundleError(f"{path}: {error}") from error
    except BundleError:
        raise
    except Exception as error:  # values that fit the schema and no network may raise anything
        raise BundleError(
            f"{path / SPEC} does not describe a policy of this version ({type(error).__name__}: {error}); export it "
            "again."
        ) from error
    learner.trained_for = TrainingRecord.from_dict(spec.record)
    return Bundle(path, spec, config, parts, learner, normaliser, calendar, parts.engine, parts.action_interpreter)


def config_of(path: Path, values: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a policy from the values in a bundle; files of code lie below `path`."""
    if other := sorted(values.keys() - set(PLACES)):
        raise BundleError(f"{path / SPEC}: config.{other[0]} is nothing that a policy is built from; export it again.")
    if "checkpoint" in (values.get("algorithm") or {}):
        raise BundleError(f"{path / SPEC} names a checkpoint, which no bundle holds; export it again.")
    return RunConfig.load(None, Layer(str(path / SPEC), values, path))


def own_parts_of(config: RunConfig) -> list[OwnPart]:
    """Return the parts of a user's own that a configuration names."""
    found = []
    for place, code in own_code(config).items():
        told = code.describe()
        found.append(OwnPart(place=place.split(" ", 1)[0], name=told["name"], hash=told["hash"]))
    return found


def split_tensors(weights: Any, place: str = "") -> tuple[Any, dict[str, Any]]:
    """Return weights as plain values with ``{"$tensor": "float32 (64, 5)"}`` in place of tensors, and these by key.

    A key is the names on the way to the tensor, joined by dots. A dict with numbers among its names, as optimisers have
    them, becomes ``{"$items": [[name, value], …]}``.

    Raises
    ------
    BundleError
        For a value that is neither plain nor a tensor, by its place.
    """
    import torch

    where = place or "the top"
    if isinstance(weights, np.ndarray) and weights.dtype.kind in "biuf":
        weights = torch.from_numpy(np.array(weights, order="C"))
    if isinstance(weights, torch.Tensor):
        return {_TENSOR: _shape_of(weights)}, {place: weights.detach().cpu().contiguous().clone()}
    if isinstance(weights, np.generic):
        weights = weights.item()
    is_number = isinstance(weights, float) and np.isfinite(weights)
    if weights is None or is_number or isinstance(weights, (bool, int, str)):
        return weights, {}
    if not isinstance(weights, (Mapping, list, tuple)):
        raise BundleError(
            f"the policy's weights hold {weights!r:.60} at {where}, which a bundle cannot hold; let the learner's "
            "weights() give text, finite numbers, lists, dicts and tensors."
        )
    pairs: list[tuple[Any, Any]] = [*(weights.items() if isinstance(weights, Mapping) else enumerate(weights))]
    plain: list[list[Any]] = []
    tensors: dict[str, Any] = {}
    for key, value in pairs:
        if not isinstance(key, (str, int)):
            raise BundleError(f"the policy's weights have the name {key!r} at {where}; let it be text or a number.")
        one, more = split_tensors(value, f"{place}.{key}" if place else str(key))
        if both := sorted(tensors.keys() & more.keys()):
            raise BundleError(f"two of the policy's weights are called {both[0]}; rename one of the two.")
        plain.append([key, one])
        tensors |= more
    if not isinstance(weights, Mapping):
        return [one for _, one in plain], tensors
    is_plain = all(isinstance(key, str) and key not in (_TENSOR, _ITEMS) for key in weights)
    return dict(plain) if is_plain else {_ITEMS: plain}, tensors


def join_tensors(plain: Any, tensors: Mapping[str, Any]) -> Any:
    """Return what `split_tensors` took apart; a tensor that is missing, left over or another is a `CheckpointError`."""
    used: set[str] = set()

    def joined(value: Any, place: str) -> Any:
        def below(key: Any, one: Any) -> Any:
            return joined(one, f"{place}.{key}" if place else str(key))

        if isinstance(value, list):
            return [below(number, one) for number, one in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if value.keys() == {_TENSOR}:
            found = _shape_of(tensors[place]) if place in tensors else "missing"
            if found != value[_TENSOR]:
                raise CheckpointError(f"the weight {place} is {found} in {WEIGHTS}, {value[_TENSOR]} in {SPEC}.")
            used.add(place)
            return tensors[place]
        items = value[_ITEMS] if value.keys() == {_ITEMS} else value.items()
        return {key: below(key, one) for key, one in items}

    made = joined(plain, "")
    if left := sorted(tensors.keys() - used):
        raise CheckpointError(f"{WEIGHTS} holds the weight {left[0]}, which {SPEC} does not name.")
    return made


def _shape_of(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _tensors(path: Path, precision: str) -> dict[str, Any]:
    """Return the weights by key; those of less precision in float32."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        found = load((path / WEIGHTS).read_bytes())
        if precision == "float32":
            return found
        plain = expanded({name: one.numpy() for name, one in found.items()})
        return {name: torch.from_numpy(one) for name, one in plain.items()}
    except (OSError, SafetensorError) as error:
        raise BundleError(f"{path / WEIGHTS} cannot be read ({error}); export the bundle again.") from None


def _check_own_parts(path: Path, spec: BundleSpec, config: RunConfig, trust_code: bool) -> None:
    """Refuse parts of a user's own that are not trusted, or are not those that the bundle was made with."""
    if not spec.own_parts and not own_code(config):
        return
    listed = "; ".join(f"{one.place} {one.name} (hash {one.hash})" for one in spec.own_parts)
    if not trust_code:
        raise BundleError(
            f"{path} names code of its own: {listed or 'unlisted'}. Read it below {path / 'code'}, then open it with "
            "trust_code=True (--trust-code)."
        )
    known = {(one.place, one.name): one.hash for one in spec.own_parts}
    for one in own_parts_of(config):
        if known.get((one.place, one.name)) != one.hash:
            raise BundleError(
                f"{path}: {one.place} {one.name} has the hash {one.hash}, the bundle was made with "
                f"{known.get((one.place, one.name), 'none of that name')}; bring back that code or export again."
            )


def _check_record(path: Path, spec: BundleSpec, parts: ServedParts, features: MarketFeatures) -> None:
    """Refuse a policy that was trained for other features, bars, steps, spaces or rules than those of the bundle."""
    from rlwb.trainer import record_of

    here = record_of(parts.simulator, parts.state_interpreter(features), parts.action_interpreter)
    found = TrainingRecord.from_dict(spec.record)
    check_record(found, here, f"the policy of {path}", names=(*ACTING, "rules"), do="export it again.")
