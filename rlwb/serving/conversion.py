"""Weights that were saved elsewhere, brought into the form of a policy of rlwb, or refused by the name of a key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlwb.errors import CheckpointError, ConfigError
from rlwb.learner import Learner
from rlwb.serving.bundle import join_tensors, split_tensors

#: What a file of weights may hold beside them, which only training needs; it is left out, and said to be.
_OF_TRAINING = re.compile(
    r"(.*[._])?(optimizers?|optim|lr_schedulers?|scheduler|replay|callbacks|loops|critics?[12]?|target\w*|\w+_old|"
    r"teacher|statistics|counters)([._].*)?"
)
#: Names that wrappers of modules put between the others.
_WRAPPERS = ("module", "_orig_mod")


def read_state(path: Path) -> dict[str, Any]:
    """Return what a file of weights holds: ``.safetensors``, or what ``torch.save`` wrote, as plain values alone.

    Raises
    ------
    CheckpointError
        When there is no such file, it is damaged, or it holds more than plain values and tensors; no code of it is run.
    """
    from rlwb.policy.qlib import load_state

    if path.suffix != ".safetensors":
        return dict(load_state(path))
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return dict(load(path.read_bytes()))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors ({error}); use another file.") from None


def convert_state(state: Mapping[str, Any], learner: Learner, name: str) -> str:
    """Give a policy the weights of a state that was saved elsewhere; return in words how they were converted.

    Known are the weights of the policy alone, those under names of wrappers (``module.``, ``policy.``, ``network.``, a
    trainer's whole state), and, for the network ``qlib_recurrent``, Qlib's. Numbers become those of the network's own
    type. What only training needs, such as an optimiser, is left out. The critic of an actor and critic may be missing,
    since nothing is decided by it.

    Parameters
    ----------
    state
        Tensors by name, in mappings of mappings or not.
    learner
        The policy, built by the configuration that the weights are for.
    name
        What the state is called in errors.

    Raises
    ------
    CheckpointError
        Naming the first weight that is missing, left over, of another shape or kind, or not finite.
    """
    import torch

    plain, own = split_tensors(learner.weights())
    parts = {part for key in own for part in key.split(".")}
    found = dict(_tensors(state, [one for one in _WRAPPERS if one not in parts]))
    if not found:
        raise CheckpointError(f"{name} holds no tensors; give the state of a policy.")
    if any("raw_rnn.weight_ih_l0" in key for key in found):
        return _from_qlib(state, learner, name)
    prefix, outer = _prefixes(found, own)
    taken, left = {}, []
    for key, value in found.items():
        short = key.removeprefix(prefix)
        if key.startswith(prefix) and f"{outer}{short}" in own:
            taken[f"{outer}{short}"] = (key, value)
        elif _OF_TRAINING.fullmatch(key):
            left.append(key)
        else:
            raise CheckpointError(f"{name} holds {key}, for which the policy has no weight; give its configuration.")
    converted, missing, types = {}, [], set()
    for key, mine in own.items():
        if key not in taken:
            if not _is_critic(learner, key):
                raise CheckpointError(
                    f"{name} lacks {prefix}{key.removeprefix(outer)}, a weight of the policy; give its configuration."
                )
            missing.append(key)
            converted[key] = torch.zeros_like(mine)
            continue
        theirs, value = taken[key]
        if value.shape != mine.shape:
            raise CheckpointError(
                f"{theirs} of {name} has shape {tuple(value.shape)}, the policy's {tuple(mine.shape)}; give its own "
                "configuration."
            )
        if value.is_floating_point() != mine.is_floating_point() or value.is_complex():
            raise CheckpointError(f"{theirs} of {name} is of {_type(value)}, the policy's of {_type(mine)}.")
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{theirs} of {name} holds NaN or infinity; use a state from before that.")
        if value.dtype != mine.dtype:
            types.add(f"{_type(value)} to {_type(mine)}")
        converted[key] = value.to(mine.dtype)
    learner.load_weights(join_tensors(plain, converted))
    steps = [f"names under {prefix}" if prefix else "the policy's own names"]
    steps += [f"numbers from {one}" for one in sorted(types)]
    steps += [f"without {_few(left)}"] if left else []
    steps += [f"{_few(missing)} not among them, which no decision needs"] if missing else []
    return f"Weights of {Path(name).name}: {'; '.join(steps)}."


def _tensors(state: Any, wrappers: Collection[str], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the tensors of nested mappings by the names on the way to them, without those of wrappers."""
    import torch

    for key, value in state.items():
        name = f"{place}.{key}".lstrip(".")
        if isinstance(value, Mapping):
            yield from _tensors(value, wrappers, name)
        elif isinstance(value, torch.Tensor):
            yield ".".join(part for part in name.split(".") if part not in wrappers), value


def _prefixes(found: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[str, str]:
    """Return what stands before the policy's weights in a state, and in the policy, so that the most names agree."""
    outers = {"", *(key[: key.index(".") + 1] for key in own if "." in key)}
    best = ("", "")
    most = -1
    for outer in sorted(outers, key=len):
        names = {key.removeprefix(outer) for key in own if key.startswith(outer)}
        if len(names) < len(own):  # what stands before all of them
            continue
        prefixes = {""} | {key[: -len(one)] for one in names for key in found if key.endswith(f".{one}") and one}
        for prefix in sorted(prefixes, key=len):
            count = sum(f"{prefix}{one}" in found for one in names)
            if count > most:
                best, most = (prefix, outer), count
    return best


def _is_critic(learner: Learner, key: str) -> bool:
    """Tell whether a weight is one that decisions do not depend on."""
    from rlwb.policy.heads import ActorCritic

    return isinstance(getattr(learner, "network", None), ActorCritic) and key.startswith("network.critic.")


def _from_qlib(state: Mapping[str, Any], learner: Learner, name: str) -> str:
    """Give a policy on Qlib's network the weights of Qlib's state."""
    from rlwb.policy.qlib import QlibRecurrent, from_qlib

    trunk = getattr(getattr(learner, "network", None), "trunk", None)
    if not isinstance(trunk, QlibRecurrent):
        raise ConfigError(f"{name} holds a policy of Qlib's; set network to qlib_recurrent, algorithm to ppo or dqn.")
    policy = from_qlib(state).policy
    learner.load_weights(policy.weights())
    return f"Weights of {Path(name).name}: Qlib's names, by rlwb.policy.from_qlib, without the branch for yesterday."


def _type(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _few(names: list[str]) -> str:
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
