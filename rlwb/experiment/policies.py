"""Policies made elsewhere, to be judged beside a run's own: of Stable-Baselines3, ONNX graphs, and functions."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlwb.code import Code
from rlwb.errors import ConfigError, RlwbError
from rlwb.execution import KnownStateInterpreter
from rlwb.execution.flat import OBSERVED_AS, observe_as
from rlwb.experiment.own_code import ask_trust
from rlwb.experiment.run import RunDirectory
from rlwb.files import atomic_path, write_json
from rlwb.interpreter import ActionInterpreter, StateInterpreter, as_width_of, check_rows_in_space
from rlwb.packages import require_packages
from rlwb.reading import read_json

#: Names in tables that are those of a run's own policies.
_TAKEN = re.compile(r"checkpoints?(-\d+)?|last|teacher|fills|hindsight(_uncapped)?")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,59}")
_FOLDER, _LIST = "policies", "policies.json"

#: What a function is told beside the observations if it has parameters of these names.
_ASKED = ("action_masks", "episode", "episode_start")

Decide = Callable[..., Any]


@dataclass(frozen=True)
class Fitted:
    """A policy made elsewhere that was found to fit a run.

    Attributes
    ----------
    decide
        Returns the actions for N observations, and for what it asks by the names in `asks`.
    form
        Which of `OBSERVED_AS` it is given.
    asks
        Names of `_ASKED`.
    """

    decide: Decide
    form: str
    asks: tuple[str, ...] = ()


Fit = Callable[[Mapping[str, gym.Space[Any]], gym.Space[Any]], Fitted]


@dataclass(frozen=True)
class MadeElsewhere:
    """A policy made elsewhere.

    Attributes
    ----------
    name
        Its name in tables.
    about
        What it is, in words.
    fit
        Fits it to the observations that a run can give, by name of their form, and to a run's actions; raises
        `ConfigError`, naming what does not fit.
    """

    name: str
    about: str
    fit: Fit

    def playable(
        self, sees: StateInterpreter[Any], acts: ActionInterpreter[Any]
    ) -> tuple[Any, StateInterpreter[Any], ActionInterpreter[Any]]:
        """Return the policy as `rlwb.trainer.backtest` takes it, in place of one that sees `sees`."""
        forms: dict[str, StateInterpreter[Any]] = {}
        for form in OBSERVED_AS:
            try:
                forms[form] = observe_as(sees, form)
            except ConfigError:  # observations of one's own that are no numbers
                continue
        spaces = {form: one.observation_space for form, one in forms.items()}
        fitted = self.fit(spaces, acts.action_space)
        return _Player(self.name, fitted, forms[fitted.form], acts), KnownStateInterpreter(), acts


class _Player:
    """Acts on what is known as a policy made elsewhere answers, of all episodes at once."""

    by_episode = True

    def __init__(self, name: str, fitted: Fitted, sees: StateInterpreter[Any], acts: ActionInterpreter[Any]) -> None:
        self.name, self._fitted, self._sees, self._acts = name, fitted, sees, acts
        self._space = acts.action_space

    def act(self, known: Any, noise: np.ndarray | None = None, episode: np.ndarray | None = None) -> np.ndarray:
        """Return the actions for N episodes, of the numbers `episode`; without them all that there are."""
        told = {
            "action_masks": lambda: self._masks(known),
            "episode": lambda: np.arange(len(known)) if episode is None else episode,
            "episode_start": lambda: np.asarray(known.step) == 0,
        }
        more = {name: told[name]() for name in self._fitted.asks}
        try:
            answer = self._fitted.decide(self._sees.interpret(known), **more)
        except RlwbError:
            raise
        except Exception as error:
            words = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise ConfigError(f"the policy {self.name} failed on {len(known)} observations ({words}).") from error
        return self._checked(answer, len(known))

    def _masks(self, known: Any) -> np.ndarray:
        mask = self._acts.mask(known)
        if mask is None:
            return np.ones((len(known), int(getattr(self._space, "n", 1))), dtype=bool)
        return mask

    def _checked(self, answer: Any, count: int) -> np.ndarray:
        values, shape = np.asarray(answer), (count, *(self._space.shape or ()))
        if values.size == count * int(np.prod(shape[1:], dtype=int)) and values.shape[:1] == (count,):
            values = values.reshape(shape)  # (N, 1) for numbers
        if values.shape != shape:
            raise ConfigError(
                f"the policy {self.name} answered with shape {values.shape}; give one action a row, {shape}."
            )
        values = as_width_of(self._space, values)
        check_rows_in_space(self._space, values, f"an action of the policy {self.name}")
        return values


def open_policy(name: str, source: Any) -> MadeElsewhere:
    """Return a policy made elsewhere.

    Parameters
    ----------
    source
        The path of a ``.zip`` of Stable-Baselines3 or of a ``.onnx`` graph, ``file.py:function``, a function, or a
        model or policy of Stable-Baselines3. Files are loaded without asking; see `require_trust_of_policies`.

    Raises
    ------
    ConfigError
        When it cannot be read, or is none of these.
    """
    if not isinstance(source, (str, Path)):
        return MadeElsewhere(name, *_of_object(name, source))
    place, attribute = _split(source)
    if attribute is not None:
        made = Code(str(place), attribute, is_foreign=True).load()
        _, fit = _of_object(name, _object_of(name, place, made) if isinstance(made, type) else made)
        return MadeElsewhere(name, f"{attribute} of {place.name}", fit)
    if not place.is_file():
        raise ConfigError(f"the policy {name}: there is no file {place}; check the path.")
    if place.suffix == ".zip":
        return MadeElsewhere(name, *_of_sb3_file(name, place))
    if place.suffix == ".onnx":
        return MadeElsewhere(name, *_of_onnx(name, place))
    raise ConfigError(f"the policy {name}: {place.name} is no .zip, .onnx or file.py:function; give one of these.")


def _object_of(name: str, place: Path, kind: type) -> Any:
    try:
        return kind()
    except Exception as error:
        raise ConfigError(
            f"the policy {name}: {kind.__name__} of {place.name} cannot be made without arguments "
            f"({type(error).__name__}: {error}); give a function that makes it, or defaults."
        ) from error


def _split(source: str | Path) -> tuple[Path, str | None]:
    """Return the file of a source, and the name in it of a function."""
    file, colon, attribute = str(source).rpartition(":")
    if colon and file.endswith(".py"):
        return Path(file), attribute
    if str(source).endswith(".py"):
        raise ConfigError(f"{source} names no function; write {Path(source).name}:function.")
    return Path(source), None


def parse_policies(assignments: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Return name to source of what ``--policy NAME=SPEC`` says, once or more often."""
    found: dict[str, str] = {}
    for text in assignments:
        name, equals, source = text.partition("=")
        if not equals or not source:
            raise ConfigError(f"--policy {text!r} is not NAME=SPEC; for example mine=mine.zip or mine=mine.py:policy.")
        if name.casefold() in map(str.casefold, found):  # some disks make one file of both
            raise ConfigError(
                f"--policy names {name} twice; give each policy a name of its own, told apart by more than case."
            )
        found[name] = source
    return found


def check_names(names: Mapping[str, Any], taken: list[str]) -> None:
    """Refuse names that files cannot bear, or that a run's own policies have (`taken`)."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"the policy name {name!r} holds more than letters, digits, dots, - and _; choose another."
            )
        if name.casefold() in map(str.casefold, taken) or _TAKEN.fullmatch(name):
            raise ConfigError(f"the run has a policy called {name} itself; choose another name.")


def keep_policies(run: RunDirectory, policies: Mapping[str, str]) -> None:
    """Copy the files of policies into the directory of an evaluation: ``policies/NAME/`` and a list of them."""
    listed = {}
    for name, source in policies.items():
        place, attribute = _split(source)
        beside = [one for one in (place.with_name(f"{place.name}.data"),) if one.is_file()]  # large weights of a graph
        for file in (place, *beside):
            with atomic_path(run.path / _FOLDER / name / file.name) as target:
                shutil.copyfile(file, target)
        listed[name] = f"{_FOLDER}/{name}/{place.name}{f':{attribute}' if attribute else ''}"
    if listed:
        write_json(run.path / _FOLDER / _LIST, listed)


def kept_policies(run: RunDirectory) -> dict[str, str]:
    """Return name to source of the policies that an evaluation keeps; none of a run."""
    path = run.path / _FOLDER / _LIST
    return {name: str(run.path / source) for name, source in read_json(path).items()} if path.is_file() else {}


def open_kept(run: RunDirectory) -> list[MadeElsewhere]:
    """Return the policies that an evaluation keeps, as far as their code is trusted."""
    kept = kept_policies(run)
    require_trust_of_policies(kept)
    return [open_policy(name, source) for name, source in kept.items()]


def told_of(policies: Sequence[MadeElsewhere]) -> list[str]:
    """Say in a sentence what policies made elsewhere are; nothing where there are none."""
    if not policies:
        return []
    listed = ", ".join(f"{one.name} ({one.about})" for one in policies)
    return [f"Made elsewhere: {listed}. What they were trained on is not known here, and may include the test days."]


def require_trust_of_policies(policies: Mapping[str, Any], *, given: bool = False) -> None:
    """Ask before code that a policy's file holds is run, unless trust is `given` or this user has said so before.

    Raises
    ------
    ConfigError
        When it is not trusted, or nobody can be asked.
    """
    keys = {}
    for name, source in policies.items():
        if not isinstance(source, (str, Path)):
            continue
        place, attribute = _split(source)
        if not place.is_file():
            raise ConfigError(f"the policy {name}: there is no file {place}; check the path.")
        if attribute is None and place.suffix != ".zip":  # a file that is called .py alone has no suffix
            continue
        content = hashlib.blake2b(place.read_bytes(), digest_size=12).hexdigest()
        what = "holds pickles, which run code of whoever made it as they are read" if attribute is None else "is code"
        keys[f"the policy {name}, whose file {place.name} {what} (hash {content})"] = f"{content}:{attribute or ''}"
    ask_trust(keys, given=given)


def _same(first: gym.Space[Any], second: gym.Space[Any]) -> bool:
    """Tell whether two spaces are equal, whatever the order of their keys."""
    if isinstance(first, gym.spaces.Dict) and isinstance(second, gym.spaces.Dict):
        return first.spaces.keys() == second.spaces.keys() and all(
            _same(part, second.spaces[key]) for key, part in first.spaces.items()
        )
    return bool(first == second)


def _told(space: gym.Space[Any]) -> str:
    """Return a space in few words."""
    if isinstance(space, gym.spaces.Dict):
        return f"a dict of {', '.join(f'{key} {part.shape}' for key, part in space.spaces.items())}"
    return f"{type(space).__name__} of {space.n if isinstance(space, gym.spaces.Discrete) else space.shape}"


def _form_of(name: str, wanted: gym.Space[Any], given: Mapping[str, gym.Space[Any]]) -> str:
    """Return the form of observations that a policy was made for."""
    for form, space in given.items():
        if _same(wanted, space):
            return form
    known = "; ".join(f"{form}: {_told(space)}" for form, space in given.items())
    raise ConfigError(
        f"the policy {name} was made for other observations: {_told(wanted)}. This run gives {known}. Train it on "
        "rlwb/OrderExecution-v0 with this run's configuration, or give a function that translates."
    )


def _check_actions(name: str, wanted: gym.Space[Any], given: gym.Space[Any]) -> None:
    if not _same(wanted, given):
        raise ConfigError(
            f"the policy {name} was made for other actions: {wanted}, this run's are {given}. Judge it on a run with "
            "its action_interpreter, or give a function that translates."
        )


def _of_object(name: str, source: Any) -> tuple[str, Fit]:
    """Return what an object of Python is, and how it is fitted."""
    policy = getattr(source, "policy", source)
    if callable(getattr(policy, "predict", None)) and hasattr(policy, "observation_space"):
        return _of_sb3_policy(name, policy)
    if not callable(source):
        raise ConfigError(f"the policy {name} is a {type(source).__name__}, which cannot be called; give a function.")
    form = getattr(source, "observation", "declared")
    parameters = inspect.signature(source).parameters
    asks = tuple(one for one in _ASKED if one in parameters)

    def fit(spaces: Mapping[str, gym.Space[Any]], actions: gym.Space[Any]) -> Fitted:
        if form not in spaces:
            raise ConfigError(f"the policy {name} asks for observations {form!r}; choose one of {', '.join(spaces)}.")
        return Fitted(source, form, asks)

    return f"the function {getattr(source, '__name__', type(source).__name__)}", fit


def _of_sb3_file(name: str, path: Path) -> tuple[str, Fit]:
    """Return what a file of Stable-Baselines3 holds; this runs the code of its pickles."""
    require_packages(f"the policy {name}, a file of Stable-Baselines3,", "sb3", "stable_baselines3", "sb3_contrib")
    from stable_baselines3.common.save_util import load_from_zip_file

    needed = ("policy_class", "policy_kwargs", "observation_space", "action_space", "use_sde")
    try:
        with zipfile.ZipFile(path) as archive:
            listed = json.loads(archive.read("data"))
        # What learning alone needs, such as buffers, schedules and generators of random numbers, stays unread.
        unread = dict.fromkeys(key for key in listed if key not in needed)
        data, weights, _ = load_from_zip_file(path, custom_objects=unread, device="cpu")
        kwargs = dict(data["policy_kwargs"] or {})
        if data.get("use_sde") and "use_sde" not in kwargs:
            kwargs["use_sde"] = True
        policy = data["policy_class"](data["observation_space"], data["action_space"], lambda _: 0.0, **kwargs)
        policy.load_state_dict(weights["policy"])
    except Exception as error:  # of a file that may hold anything
        words = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(
            f"the policy {name}: {path} is no model of Stable-Baselines3 that can be read ({words})."
        ) from error
    return _of_sb3_policy(name, policy)


def _of_sb3_policy(name: str, policy: Any) -> tuple[str, Fit]:
    """Return what a policy of Stable-Baselines3 is, and how it is fitted; it acts deterministically."""
    parameters = inspect.signature(policy.predict).parameters
    is_recurrent = hasattr(policy, "lstm_hidden_state_shape")

    def fit(spaces: Mapping[str, gym.Space[Any]], actions: gym.Space[Any]) -> Fitted:
        form = _form_of(name, policy.observation_space, spaces)
        _check_actions(name, policy.action_space, actions)
        if is_recurrent:
            return Fitted(_Recurrent(policy), form, ("episode", "episode_start"))
        if "action_masks" in parameters:
            return Fitted(partial(_predicted, policy), form, ("action_masks",))
        return Fitted(partial(_predicted, policy), form)

    return f"{type(policy).__name__} of Stable-Baselines3", fit


def _predicted(policy: Any, obs: Any, **more: Any) -> np.ndarray:
    return np.asarray(policy.predict(obs, deterministic=True, **more)[0])


class _Recurrent:
    """A recurrent policy of Stable-Baselines3, with a state for each episode."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._state: list[np.ndarray] | None = None  # each of shape (layers, episodes, hidden)

    def __call__(self, obs: Any, episode: np.ndarray, episode_start: np.ndarray) -> np.ndarray:
        layers, _, hidden = self._policy.lstm_hidden_state_shape
        size = int(episode.max()) + 1
        if self._state is None or self._state[0].shape[1] < size:
            kept = self._state or [np.zeros((layers, 0, hidden), dtype=np.float32)] * 2
            self._state = [np.pad(one, ((0, 0), (0, size - one.shape[1]), (0, 0))) for one in kept]
        before = tuple(one[:, episode] for one in self._state)
        action, after = self._policy.predict(obs, before, episode_start, deterministic=True)
        for one, new in zip(self._state, after, strict=True):
            one[:, episode] = new
        return np.asarray(action)


def _of_onnx(name: str, path: Path) -> tuple[str, Fit]:
    """Return what a graph is, and how it is fitted: by its inputs' names and shapes, and its first output."""
    require_packages(f"the policy {name}, a graph,", "export", "onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own have no common base
        words = str(error).partition("\n")[0]
        raise ConfigError(f"the policy {name}: {path} is no graph that onnxruntime can read ({words}).") from error
    inputs = session.get_inputs()

    def fit(spaces: Mapping[str, gym.Space[Any]], actions: gym.Space[Any]) -> Fitted:
        form = _form_of_graph(name, {one.name: list(one.shape) for one in inputs}, spaces)
        one_by_one = isinstance(inputs[0].shape[0], int) and inputs[0].shape[0] == 1

        def run(feed: Mapping[str, np.ndarray]) -> np.ndarray:
            return np.asarray(session.run([session.get_outputs()[0].name], feed)[0])

        def decide(obs: Any) -> np.ndarray:
            parts = {inputs[0].name: obs} if form == "flat" else obs
            feed = {one.name: np.asarray(parts[one.name], dtype=_DTYPES.get(one.type, np.float32)) for one in inputs}
            count = len(next(iter(feed.values())))
            if one_by_one:
                rows = [run({key: value[i : i + 1] for key, value in feed.items()}) for i in range(count)]
                answer = np.concatenate(rows)
            else:
                answer = run(feed)
            return _action_of(name, answer, actions)

        return Fitted(decide, form)

    return f"a graph of {', '.join(one.name for one in inputs)}", fit


_DTYPES = {"tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


def _form_of_graph(name: str, inputs: Mapping[str, list[Any]], spaces: Mapping[str, gym.Space[Any]]) -> str:
    """Return the form of observations that a graph takes: one vector, or parts by their names."""

    def fits(shape: list[Any], space: gym.Space[Any]) -> bool:
        own = (space.shape or ()) if isinstance(space, gym.spaces.Box) else ()
        return len(shape) == len(own) + 1 and all(
            not isinstance(size, int) or size == wanted for size, wanted in zip(shape[1:], own, strict=True)
        )

    for form, space in spaces.items():
        if isinstance(space, gym.spaces.Dict):
            if all(key in space.spaces and fits(shape, space.spaces[key]) for key, shape in inputs.items()):
                return form
        elif len(inputs) == 1 and fits(next(iter(inputs.values())), space):
            return form
    known = "; ".join(f"{form}: {_told(space)}" for form, space in spaces.items())
    raise ConfigError(
        f"the policy {name} is a graph of {', '.join(f'{key} {shape}' for key, shape in inputs.items())}, and this run "
        f"gives {known}: export it with one input of the vector, or with inputs of these names; a state that goes from "
        "step to step cannot be given to a graph."
    )


def _action_of(name: str, answer: np.ndarray, actions: gym.Space[Any]) -> np.ndarray:
    """Return the actions in a graph's first output: themselves, or a score for each choice."""
    if isinstance(actions, gym.spaces.Discrete) and answer.dtype.kind == "f":
        if answer.ndim != 2 or answer.shape[1] != actions.n:
            raise ConfigError(
                f"the graph of the policy {name} answers with shape {answer.shape}; its first output must be the "
                f"action, as a whole number, or a score for each of {actions.n} actions."
            )
        if not np.isfinite(answer).all():
            raise ConfigError(f"the graph of the policy {name} answers NaN or infinity; look at its weights.")
        return np.asarray(answer.argmax(axis=1)) + int(actions.start)
    return answer
