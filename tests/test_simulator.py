import pickle

import pytest

from rlwb.simulator import Simulator


class Count(Simulator[int, int, int]):
    def __init__(self, initial):
        super().__init__(initial)
        self.left = initial

    def step(self, action):
        self.left -= action

    def get_state(self):
        return self.left

    def done(self):
        return self.left <= 0


def test_an_episode():
    simulator = Count(5)
    simulator.step(3)
    assert (simulator.get_state(), simulator.done()) == (2, False)
    simulator.step(2)
    assert simulator.done()
    assert simulator.metrics() == {}
    assert simulator.describe() == "5"


def test_all_methods_must_be_written():
    class Half(Simulator):
        def step(self, action):
            pass

    with pytest.raises(TypeError, match="abstract"):
        Half(1)


def test_environment_is_bound_but_not_pickled():
    simulator = Count(5)
    assert simulator.env is None
    simulator.bind(lambda: "cannot be pickled")
    copy = pickle.loads(pickle.dumps(simulator))
    assert copy.env is None
    assert copy.left == 5
    assert simulator.env is not None
