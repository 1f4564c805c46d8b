import pickle
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.env import DataQueue
from rlwb.env.data_queue import stream
from rlwb.errors import ConfigError, DataError


@given(n=st.integers(1, 20), repeat=st.integers(1, 4), shuffle=st.booleans())
def test_every_item_once_an_epoch(n, repeat, shuffle):
    got = list(DataQueue(range(n), repeat, shuffle, seed=n))
    assert len(got) == n * repeat
    for epoch in range(repeat):
        assert sorted(got[epoch * n : (epoch + 1) * n]) == list(range(n))


@given(n=st.integers(1, 12), taken=st.integers(0, 40))
def test_e_resume_is_exact(n, taken):
    expected = list(islice(DataQueue(range(n), -1, seed=7), taken + 30))
    queue, resumed = DataQueue(range(n), -1, seed=7), DataQueue(range(n), -1, seed=7)
    assert list(islice(queue, taken)) == expected[:taken]
    next(resumed)
    resumed.load_state_dict(pickle.loads(pickle.dumps(queue.state_dict())))
    assert list(islice(resumed, 30)) == expected[taken:]


def test_order_depends_on_seed_and_epoch_only():
    first = list(DataQueue(range(50), 2, seed=1))
    assert first == list(DataQueue(range(50), 2, seed=1))
    assert first[:50] != first[50:]
    assert first != list(DataQueue(range(50), 2, seed=2))
    assert list(DataQueue(range(5), 2, shuffle=False)) == [0, 1, 2, 3, 4] * 2


def test_loop_continues_and_a_finished_queue_starts_over():
    queue = DataQueue(range(6), shuffle=False)
    assert list(islice(queue, 2)) == [0, 1]
    assert list(queue) == [2, 3, 4, 5]
    with pytest.raises(StopIteration):
        next(queue)
    assert list(queue) == [0, 1, 2, 3, 4, 5]


class Bad:
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == 4:
            raise self.error
        return index


@pytest.mark.parametrize("error", [ValueError, IndexError, StopIteration])
def test_error_of_an_item_reaches_the_consumer_in_its_place(error):
    got, queue = [], DataQueue(Bad(error("bad bar")), shuffle=False)
    with pytest.raises(DataError if error is StopIteration else error) as caught:
        got.extend(queue)
    assert got == [0, 1, 2, 3]
    with pytest.raises(type(caught.value)):
        next(queue)
    assert "4" in str(caught.value) + "".join(getattr(caught.value, "__notes__", []))


def test_refusals():
    with pytest.raises(DataError, match="empty"):
        DataQueue([])
    for wrong in ({"repeat": 0}, {"repeat": -2}, {"seed": -1}):
        with pytest.raises(ConfigError):
            DataQueue([1], **wrong)
    state = DataQueue(range(5)).state_dict()
    for other in (DataQueue(range(6)), DataQueue(range(5), shuffle=False), DataQueue(range(5), seed=1)):
        with pytest.raises(ConfigError, match="saved with"):
            other.load_state_dict(state)


def test_stream_takes_only_the_real_end_for_the_end():
    assert list(stream([1, 2])) == [1, 2]
    assert list(stream(x for x in (1, 2))) == [1, 2]
    assert list(stream({1: "a", 2: "b"})) == [1, 2]
    with pytest.raises(IndexError):
        list(stream(Bad(IndexError("inside"))))
    with pytest.raises(DataError, match="StopIteration"):
        list(stream(Bad(StopIteration("inside"))))
