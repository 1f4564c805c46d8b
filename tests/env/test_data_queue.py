import copy
import pickle
import threading
import time
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.env import DataQueue
from rlwb.env.data_queue import stream
from rlwb.errors import ConfigError, DataError, RlwbError


@given(n=st.integers(1, 20), repeat=st.integers(1, 4), shuffle=st.booleans(), workers=st.sampled_from([0, 1, 3]))
def test_every_item_once_an_epoch(n, repeat, shuffle, workers):
    with DataQueue(range(n), repeat, shuffle, workers, seed=n) as queue:
        got = list(queue)
    assert len(got) == len(queue) == n * repeat
    assert Counter(got) == dict.fromkeys(range(n), repeat)
    for epoch in range(repeat):
        assert sorted(got[epoch * n : (epoch + 1) * n]) == list(range(n))


@given(
    n=st.integers(1, 12), taken=st.integers(0, 40), workers=st.sampled_from([0, 2]), ready=st.sampled_from([0, 1, 9])
)
def test_e_resume_is_exact(n, taken, workers, ready):
    with DataQueue(range(n), -1, seed=7) as reference:
        expected = list(islice(reference, taken + 30))
    with DataQueue(range(n), -1, True, workers, ready, seed=7) as queue:
        assert list(islice(queue, taken)) == expected[:taken]
        state = pickle.loads(pickle.dumps(queue.state_dict()))
    with DataQueue(range(n), -1, True, workers, ready, seed=7) as queue:
        next(queue)
        queue.load_state_dict(state)
        assert list(islice(queue, 30)) == expected[taken:]


def test_order_depends_on_seed_and_epoch_only():
    first = list(DataQueue(range(50), 2, seed=1))
    assert first == list(DataQueue(range(50), 2, producer_num_workers=4, seed=1))
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


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("error", [ValueError, IndexError, StopIteration])
def test_error_of_an_item_reaches_the_consumer_in_its_place(workers, error):
    got = []
    with DataQueue(Bad(error("bad bar")), shuffle=False, producer_num_workers=workers) as queue:
        with pytest.raises(DataError if error is StopIteration else error) as caught:
            got.extend(queue)
        assert got == [0, 1, 2, 3]
        with pytest.raises(type(caught.value)):
            next(queue)
    assert "4" in str(caught.value) + "".join(getattr(caught.value, "__notes__", []))


class Counted:
    def __init__(self):
        self.read = 0
        self.lock = threading.Lock()

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        with self.lock:
            self.read += 1
        return index


def test_reading_ahead_is_bounded():
    data = Counted()
    with DataQueue(data, producer_num_workers=2, queue_maxsize=5) as queue:
        for _ in range(10):
            next(queue)
    assert 10 <= data.read <= 15


def test_shutdown_is_clean_and_quick():
    before = threading.active_count()
    queues = [DataQueue(range(100), -1, producer_num_workers=3) for _ in range(5)]
    for queue in queues:
        next(queue)
    assert threading.active_count() > before
    start = time.perf_counter()
    for queue in queues:
        queue.close()
        queue.close()
    assert time.perf_counter() - start < 0.5
    assert threading.active_count() == before
    with pytest.raises(RlwbError, match="closed"):
        next(queues[0])


def test_refusals():
    with pytest.raises(DataError, match="empty"):
        DataQueue([])
    for wrong in ({"repeat": 0}, {"repeat": -2}, {"producer_num_workers": -1}, {"queue_maxsize": -1}, {"seed": -1}):
        with pytest.raises(ConfigError):
            DataQueue([1], **wrong)
    with pytest.raises(TypeError):
        len(DataQueue([1], -1))
    state = DataQueue(range(5)).state_dict()
    for other in (DataQueue(range(6)), DataQueue(range(5), shuffle=False), DataQueue(range(5), seed=1)):
        with pytest.raises(ConfigError, match="saved with"):
            other.load_state_dict(state)


def test_copies_go_their_own_way():
    with DataQueue(range(9), producer_num_workers=1) as queue:
        next(queue)
        with copy.deepcopy(queue) as other:
            assert list(other) == list(queue)


class Liar:
    def __len__(self):
        return 3

    def __iter__(self):
        return iter([1, 2])


def test_stream_takes_only_the_real_end_for_the_end():
    assert list(stream([1, 2])) == [1, 2]
    assert list(stream(x for x in (1, 2))) == [1, 2]
    assert list(stream({1: "a", 2: "b"})) == [1, 2]
    with pytest.raises(DataError, match="are 3, but 2 came"):
        list(stream(Liar()))
    with pytest.raises(IndexError):
        list(stream(Bad(IndexError("inside"))))
    with pytest.raises(RuntimeError):
        list(stream(Bad(StopIteration("inside"))))
