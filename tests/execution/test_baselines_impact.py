"""Impact and volatility from bars: what is put into a market is found again."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from rlwb.execution import Engine, ImpactParameters
from rlwb.market import Sessions
from tests.execution.markets import sessions_of


def market(permanent: float, *, noise: float = 0.0, days: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Prices that a trade of the mean tick volume moves by 0.001, `permanent` of it for good, and volumes.

    Every third minute has a trade, of random sign and size; the minute after it shows what stays. (days, 40) both.
    """
    rng = np.random.default_rng(5)
    size = np.where(np.arange(40) % 3 == 1, rng.lognormal(0, 0.7, size=(days, 40)), 0.0)
    signed = rng.choice([-1, 1], size=size.shape) * size / size.mean()
    moved = 0.001 * signed + rng.normal(0, noise, size=size.shape)
    moved[:, 1:] -= (0.001 - permanent) * signed[:, :-1]
    moved[:, 0] = 0.0
    return 10.0 * np.cumprod(1.0 + moved, axis=1), 1000.0 * size


def test_every_move_by_volume_alone_is_found_to_all_digits() -> None:
    rng = np.random.default_rng(0)
    volume = rng.uniform(500, 1500, size=(20, 30))
    moved = 0.001 * rng.choice([-1, 1], size=volume.shape) * volume / volume.mean()
    price = 10.0 * np.cumprod(1.0 + moved, axis=1)
    found = ImpactParameters.fit(Engine(sessions_of(price, volume), 1), np.arange(20))
    assert found.instruments == ("AAA",)
    assert found.volume[0] == pytest.approx(volume.mean(), rel=1e-12)
    assert found.temporary[0] == pytest.approx(0.001, rel=1e-9)
    assert found.volatility[0] == pytest.approx(np.sqrt((moved[:, 1:] ** 2).mean()), rel=1e-9)
    assert 0 <= found.permanent[0] <= found.temporary[0]


@pytest.mark.parametrize("permanent", [0.0, 0.0003, 0.0007, 0.001])
def test_the_part_of_the_move_that_stays_is_found(permanent: float) -> None:
    """Alone in its minute a trade moves the price by 0.001; the minute after, without trades, shows what stays."""
    found = ImpactParameters.fit(Engine(sessions_of(*market(permanent)), 1), np.arange(60))
    assert found.temporary[0] == pytest.approx(0.001, rel=1e-9)
    assert found.permanent[0] == pytest.approx(permanent, abs=1e-5)


def test_other_noise_makes_the_slope_too_large_never_too_small() -> None:
    """What the docstring warns of, in figures."""
    clean, noisy = (
        ImpactParameters.fit(Engine(sessions_of(*market(0.001, noise=noise)), 1), np.arange(60))
        for noise in (0.0, 0.002)
    )
    assert clean.temporary[0] == pytest.approx(0.001, rel=1e-9)
    assert noisy.temporary[0] > clean.temporary[0]


def test_only_the_rows_that_are_named_count() -> None:
    price, volume = market(0.0005)
    sessions, other = sessions_of(price, volume), price.copy()
    other[30:] *= np.linspace(1, 3, other.shape[1])
    mask = np.arange(60) < 30
    found = ImpactParameters.fit(Engine(sessions, 1), mask)
    assert ImpactParameters.fit(Engine(sessions_of(other, volume), 1), mask) == found
    assert ImpactParameters.fit(Engine(sessions, 1), np.arange(30)) == found
    assert ImpactParameters.fit(Engine(sessions, 1), np.arange(60)) != found


def test_gaps_and_breaks_make_no_return() -> None:
    """Returns are 10 % and, after the gap, none; over the lunch break neither."""
    price = [[10.0, 11.0, math.nan, 12.0, 20.0, 22.0]]
    clock = (("09:30", "09:34"), ("13:00", "13:02"))
    found = ImpactParameters.fit(Engine(sessions_of(price, 100.0, segments=clock), 1), np.arange(1))
    assert found.volatility[0] == pytest.approx(0.1)
    assert found.temporary[0] == pytest.approx(0.1)


def test_instruments_are_apart_and_those_that_tell_nothing_are_left_out() -> None:
    price = [[10.0, 10.5, 10.0], [10.0, 11.0, 10.0], [10.0, 10.0, 10.0], [10.0, 11.0, 10.0]]
    volume = [[10.0] * 3, [100.0] * 3, [10.0] * 3, [0.0] * 3]
    sessions = sessions_of(price, volume, instruments=["A", "B", "C", "D"])
    found = ImpactParameters.fit(Engine(sessions, 1), np.arange(4))
    assert found.instruments == ("A", "B")
    assert found.volume == (10.0, 100.0)
    assert found.temporary[1] > found.temporary[0]
    wanted = found.of(sessions, np.array([1, 3, 0, 1, 2]))
    np.testing.assert_array_equal(wanted.volume, [100.0, np.nan, 10.0, 100.0, np.nan])
    nobody = ImpactParameters.fit(Engine(sessions_of([[10.0] * 3]), 1), np.arange(1))
    assert nobody == ImpactParameters((), (), (), (), ())
    assert np.isnan(nobody.of(sessions, np.arange(4)).volatility).all()


def test_parameters_go_through_a_file_and_back() -> None:
    found = ImpactParameters.fit(Engine(sessions_of(*market(0.0005)), 1), np.arange(60))
    lists = {name: list(values) for name, values in dataclasses.asdict(found).items()}
    assert ImpactParameters.from_dict(lists) == found


def test_a_split_changes_no_estimate_beside_the_volume_of_the_day() -> None:
    """From the thirtieth day on a share is four: a quarter of the price, four times the volume."""
    price, volume = market(0.0005)
    after = np.arange(60)[:, None] >= 30
    one = sessions_of(price, volume)
    fields = dict.fromkeys(("open", "high", "low", "close"), np.where(after, price / 4, price))
    fields["volume"] = np.where(after, volume * 4, volume)
    factor = np.where(np.arange(60) >= 30, 4.0, 1.0)
    two = Sessions(one.calendar, one.instruments, one.dates, one.num_ticks, fields, factor=factor)
    found, split = (ImpactParameters.fit(Engine(each, 1), np.arange(60)) for each in (one, two))
    for name in ("volume", "volatility", "temporary", "permanent"):
        assert getattr(split, name)[0] == pytest.approx(getattr(found, name)[0], rel=1e-12)
    np.testing.assert_allclose(split.of(two, np.array([0, 59])).volume, found.volume[0] * np.array([1.0, 4.0]))
