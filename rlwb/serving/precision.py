"""Weights in fewer bits: how they are rounded, stored, and made float32 again, in a bundle and in an ONNX graph."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Literal

import numpy as np

from rlwb.errors import BundleError

Precision = Literal["int8", "float16"]
#: What a weight's scales are called, behind its own name.
SCALE = ".scale"
#: The largest code.
_MOST = 127
#: Fewer numbers than this are left in float32 within a graph.
_FEW = 32


def reduced(
    weights: Mapping[str, np.ndarray], to: Precision, kept: Container[str] = frozenset()
) -> dict[str, np.ndarray]:
    """Return weights as they are stored: float32 as float16, or as int8 with the scales under ``<name>.scale``.

    Those whose names are in `kept` stay as they are.

    Raises
    ------
    BundleError
        For a weight that float16 cannot hold.
    """
    stored: dict[str, np.ndarray] = {}
    for name, values in weights.items():
        if values.dtype != np.float32 or name in kept:
            stored[name] = values
        elif to == "float16":
            with np.errstate(over="ignore"):
                stored[name] = values.astype(np.float16)
            if not np.isfinite(stored[name]).all():
                raise BundleError(f"the weight {name} has values beyond 65,504, which float16 cannot hold; use int8.")
        elif values.ndim < 2:
            stored[name] = values
        else:
            codes, scale = _codes(values, 0)
            stored |= {name: codes, f"{name}{SCALE}": scale}
    return stored


def expanded(stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights in float32, of which `reduced` has made what is stored."""
    found = {}
    for name, values in stored.items():
        base = name.removesuffix(SCALE)
        if base != name and base in stored and stored[base].dtype == np.int8:
            continue
        if values.dtype == np.int8 and f"{name}{SCALE}" in stored:
            values = values.astype(np.float32) * _along(stored[f"{name}{SCALE}"], values.ndim, 0)
        found[name] = values.astype(np.float32) if values.dtype == np.float16 else values
    return found


def shrunk(graph: bytes, to: Precision) -> bytes:
    """Return an ONNX graph whose weights are stored in less precision; weights that are not rounded to it stay.

    The graph computes the same numbers: it begins by turning them back to float32.
    """
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_from_string(graph)
    first = []
    for one in list(model.graph.initializer):
        values = numpy_helper.to_array(one)
        if values.dtype != np.float32 or values.size < _FEW:
            continue
        kept = f"{one.name}.stored"
        if to == "float16":
            half = values.astype(np.float16)
            if not np.array_equal(half.astype(np.float32), values):
                continue
            new = [numpy_helper.from_array(half, kept)]
            back = helper.make_node("Cast", [kept], [one.name], to=onnx.TensorProto.FLOAT)
        else:
            for axis in range(values.ndim if values.ndim > 1 else 0):
                codes, scale = _codes(values, axis)
                if np.array_equal(codes.astype(np.float32) * _along(scale, values.ndim, axis), values):
                    break
            else:
                continue
            new = [numpy_helper.from_array(codes, kept), numpy_helper.from_array(scale, f"{one.name}{SCALE}")]
            back = helper.make_node("DequantizeLinear", [kept, f"{one.name}{SCALE}"], [one.name], axis=axis)
        model.graph.initializer.remove(one)
        model.graph.initializer.extend(new)
        first.append(back)
    nodes = [*first, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _codes(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return int8 codes and a float32 scale for each place along an axis, such that their product is near the values.

    A scale has 16 significant bits, so that products are exact, and codes made of them again are the same.
    """
    if not np.isfinite(values).all():
        raise BundleError("a weight is NaN or infinite, and cannot be rounded; look at how the training went.")
    others = tuple(place for place in range(values.ndim) if place != axis)
    largest = np.abs(values).max(axis=others, initial=0.0) / np.float32(_MOST)
    scale = ((largest.astype(np.float32).view(np.uint32) + np.uint32(0xFF)) & ~np.uint32(0xFF)).view(np.float32)
    scale = np.where(largest > 0, scale, np.float32(1.0))
    return np.rint(values / _along(scale, values.ndim, axis)).astype(np.int8), scale


def _along(scale: np.ndarray, axes: int, axis: int) -> np.ndarray:
    return scale.reshape([-1 if place == axis else 1 for place in range(axes)])
