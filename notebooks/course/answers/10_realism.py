"""Right answers of notebook 10, by exercise; the first of each is the model solution."""


# %% net_pa: one formula for both sides
def net_pa(paid, twap, side, commission=0.0, half_spread=0.0, sell_tax=0.0):
    costs = (commission + half_spread + sell_tax * np.equal(side, -1)) * 1e-4
    return side * (1 - paid * (1 + side * costs) / twap) * 1e4


# %% net_pa: each side by itself
def net_pa(paid, twap, side, commission=0.0, half_spread=0.0, sell_tax=0.0):
    both = commission + half_spread
    buy = 1e4 - paid * (1e4 + both) / twap
    sell = paid * (1e4 - both - sell_tax) / twap - 1e4
    return np.where(np.equal(side, 1), buy, sell)


# %% net_pa: gross less costs
def net_pa(paid, twap, side, commission=0.0, half_spread=0.0, sell_tax=0.0):
    gross = side * (twap - paid) / twap * 1e4
    tax = sell_tax * (1 - side) / 2
    return gross - (commission + half_spread + tax) * paid / twap


# %% capped_fills: bar by bar
def capped_fills(asks, volumes, limit):
    fills, carried = [], 0.0
    for bar, ask in enumerate(asks):
        wanted = carried + ask
        fills.append(min(wanted, limit * volumes[bar]))
        carried = wanted - fills[-1]
    return np.array(fills)


# %% capped_fills: by running sums
def capped_fills(asks, volumes, limit):
    asked, room = np.cumsum(asks), np.cumsum(limit * volumes)
    unused = np.minimum.accumulate(np.minimum(asked - room, 0.0))
    return np.diff(room + unused, prepend=0.0)


# %% capped_fills: by what is open
def capped_fills(asks, volumes, limit):
    fills = np.zeros(len(asks))
    for bar in range(len(asks)):
        still_open = np.sum(asks[: bar + 1]) - fills.sum()
        fills[bar] = min(still_open, limit * volumes[bar])
    return fills


# %% seen: where it is known
def seen(close, tick, late):
    return np.where(np.arange(len(close)) < tick - late, close, np.nan)


# %% seen: a copy that is cut
def seen(close, tick, late):
    known = np.array(close, dtype=float)
    known[max(tick - late, 0) :] = np.nan
    return known


# %% seen: a list
def seen(close, tick, late):
    return np.array([price if bar + late < tick else np.nan for bar, price in enumerate(close)])
