import numpy as np
import pytest

from rlwb.env import make_env
from rlwb.errors import ConfigError
from rlwb.simulator import EpisodeSimulator
from tests.env.toy import ToyAction, ToyHaste, ToyInfo, ToyObservation, ToySimulator, orders

PARTS = (EpisodeSimulator(ToySimulator), ToyObservation(), ToyAction(), ToyHaste())


def figures(kind: str, concurrency: int) -> dict[str, np.ndarray]:
    with make_env(
        *PARTS, orders(9), aux_info_collector=ToyInfo(), finite_env_type=kind, concurrency=concurrency, seed=4
    ) as env:
        active = env.reset()
        while len(active):
            _, active = env.step(active.episode % 5)
        return env.metrics()


def test_every_type_gives_the_same_figures():
    native = figures("native", 1)
    assert set(native) == {"pa", "ffr", "odd", "reward/ToyHaste", "aux/price"}
    for kind, concurrency in (("dummy", 1), ("dummy", 20), ("shmem", 2)):
        other = figures(kind, concurrency)
        assert other.keys() == native.keys()
        for name, values in native.items():
            np.testing.assert_array_equal(other[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"finite_env_type": "ray"}, "'ray'.*native, dummy, subproc, shmem"),
        ({"finite_env_type": "dummy", "concurrency": 0}, "concurrency is 0"),
        ({"concurrency": 1.5}, "concurrency is 1.5"),
    ],
)
def test_impossible_types_and_numbers_are_refused(kwargs, words):
    with pytest.raises(ConfigError, match=words):
        make_env(*PARTS, orders(2), **kwargs)
