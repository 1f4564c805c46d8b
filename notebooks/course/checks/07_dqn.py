"""Checks of notebook 07: one point a case."""

import numpy as np

from rlwb.course import case, close


@case("double_targets")
def one_transition(answer):
    """Reward 1, own [2, 7], older [5, 3] and gamma 0.5 give 2.5."""
    got = answer(np.array([1.0]), np.array([False]), np.array([[2.0, 7.0]]), np.array([[5.0, 3.0]]), 0.5)
    close(got, [2.5], "the target")


@case("double_targets")
def many(answer):
    """Each transition has its own best action, and gamma is 1 unless it is given."""
    own = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0], [-3.0, -2.0, -1.0]])
    older = np.array([[10.0, 20.0, 30.0], [1.0, 2.0, 3.0], [7.0, 8.0, 9.0]])
    got = answer(np.array([1.0, -2.0, 0.5]), np.zeros(3, dtype=bool), own, older)
    close(got, [11.0, 0.0, 9.5], "the target")


@case("double_targets")
def ends(answer):
    """Where nothing follows the target is the reward, even if the values are NaN."""
    nan = np.full((1, 2), np.nan)
    own, older = np.concatenate([nan, [[1.0, 2.0]], [[4.0, 3.0]]]), np.concatenate([nan, [[6.0, 5.0]], [[8.0, 9.0]]])
    got = answer(np.array([4.0, 1.0, 2.0]), np.array([True, True, False]), own, older, 0.9)
    close(got, [4.0, 1.0, 2.0 + 0.9 * 8.0], "the target")


@case("double_targets")
def equals(answer):
    """Of equally good actions the first is taken, and no argument is changed."""
    reward, done, own, older = np.zeros(1), np.array([False]), np.array([[1.0, 4.0, 4.0]]), np.array([[1.0, 2.0, 3.0]])
    close(answer(reward, done, own, older, 1.0), [2.0], "the target")
    close(reward, [0.0], "reward after the call")
    close(older, [[1.0, 2.0, 3.0]], "older after the call")


@case("explore_with")
def one_number(answer):
    """Noise 0.1 with epsilon 0.4 and four actions takes action 1."""
    close(answer(np.array([3]), np.array([0.1]), 0.4, 4), [1], "the action")


@case("explore_with")
def borders(answer):
    """Noise from epsilon on keeps the best; below it the borders belong to the action above them."""
    noise = np.array([0.0, 0.125, 0.25, 0.375, 0.4375, 0.5, 0.75])
    close(answer(np.full(7, 9), noise, 0.5, 4), [0, 1, 2, 3, 3, 9, 9], "the action")


@case("explore_with")
def nothing_random(answer):
    """With epsilon 0 every action is the best."""
    close(answer(np.array([2, 0, 1]), np.array([0.0, 0.3, 0.9]), 0.0, 3), [2, 0, 1], "the action")


@case("explore_with")
def all_random(answer):
    """With epsilon 1 all actions come equally often, as whole numbers, and the arguments stay."""
    noise, best = np.random.default_rng(0).random(4000), np.full(4000, 2)
    got = np.asarray(answer(best, noise, 1.0, 5))
    assert np.issubdtype(got.dtype, np.integer), f"the actions are {got.dtype}; whole numbers are needed"
    close(np.bincount(got, minlength=5) / 4000, np.full(5, 0.2), "the share", 0.03)
    close(best, np.full(4000, 2), "best after the call")


@case("ReplayBuffer")
def grows(answer):
    """A buffer begins empty and grows by what is added."""
    buffer = answer(3)
    assert len(buffer) == 0, f"a new buffer has {len(buffer)} items"
    for number, item in enumerate("ab", start=1):
        buffer.add(item)
        assert len(buffer) == number, f"after {number} items the buffer has {len(buffer)}"
    assert list(buffer.items()) == ["a", "b"], f"the items are {buffer.items()}, not ['a', 'b']"


@case("ReplayBuffer")
def forgets(answer):
    """A full buffer lets the oldest go, again and again."""
    buffer = answer(3)
    for item in range(8):
        buffer.add(item)
        kept = list(range(max(0, item - 2), item + 1))
        assert list(buffer.items()) == kept, f"after adding {item} the items are {list(buffer.items())}, not {kept}"
        assert len(buffer) == len(kept), f"the length is {len(buffer)}, not {len(kept)}"


@case("ReplayBuffer")
def draws(answer):
    """Every item that is kept is drawn as often as any other."""
    buffer = answer(4)
    for item in range(10):
        buffer.add(item)
    drawn = list(buffer.sample(4000, np.random.default_rng(1)))
    assert len(drawn) == 4000, f"{len(drawn)} items were drawn, not 4000"
    share = [drawn.count(item) / 4000 for item in range(6, 10)]
    close(share, [0.25] * 4, "the share of an item", 0.03)


@case("ReplayBuffer")
def draws_from_few(answer):
    """A buffer that is not full draws from what it has, with replacement."""
    buffer = answer(100)
    for item in (5, 7):
        buffer.add(item)
    drawn = [int(item) for item in buffer.sample(400, np.random.default_rng(2))]
    assert set(drawn) == {5, 7}, f"400 draws from 5 and 7 gave {sorted(set(drawn))}"
    close(drawn.count(5) / 400, 0.5, "the share of an item", 0.2)


@case("ReplayBuffer")
def repeatable(answer):
    """The random numbers come from rng alone, and two buffers do not share their items."""
    one, other = answer(5), answer(5)
    for item in range(5):
        one.add(item)
    assert len(other) == 0, "what one buffer is given another has, too"
    first, again = (list(one.sample(20, np.random.default_rng(3))) for _ in range(2))
    assert first == again, "two generators of one seed draw different items; take all random numbers from rng"
    other_seed = list(one.sample(20, np.random.default_rng(4)))
    assert first != other_seed, "generators of two seeds draw the same items; take all random numbers from rng"
