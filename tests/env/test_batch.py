import gymnasium as gym
import numpy as np

from rlwb.env.batch import empty_batch, take_rows, write_row

SPACE = gym.spaces.Dict(
    {
        "box": gym.spaces.Box(-1, 1, (2, 3), np.float32),
        "count": gym.spaces.Discrete(5),
        "pair": gym.spaces.Tuple([gym.spaces.MultiBinary(2), gym.spaces.MultiDiscrete([3, 4])]),
        "text": gym.spaces.Text(5),
    }
)


def test_rows_come_back_as_written_and_fresh():
    batch = empty_batch(SPACE, 4)
    SPACE.seed(0)
    samples = [SPACE.sample() for _ in range(4)]
    for row, obs in enumerate(samples):
        write_row(batch, row, obs)
    taken = take_rows(batch, np.array([3, 1]))
    assert taken["box"].dtype == np.float32
    assert taken["box"].shape == (2, 2, 3)
    assert taken["count"].dtype == np.int64
    for row, which in enumerate((3, 1)):
        np.testing.assert_array_equal(taken["box"][row], samples[which]["box"])
        np.testing.assert_array_equal(taken["pair"][1][row], samples[which]["pair"][1])
        assert taken["count"][row] == samples[which]["count"]
        assert taken["text"][row] == samples[which]["text"]
    write_row(batch, 3, samples[0])
    np.testing.assert_array_equal(taken["box"][0], samples[3]["box"])


def test_no_rows_keep_shape_and_dtype():
    none = take_rows(empty_batch(SPACE, 3), np.array([], dtype=np.int64))
    assert none["box"].shape == (0, 2, 3)
    assert none["box"].dtype == np.float32
