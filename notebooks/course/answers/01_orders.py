"""Right answers of notebook 01, by exercise; the first of each is the model solution."""


# %% price_advantage: by the definition
def price_advantage(paid, twap, side):
    return side * (1 - paid / twap) * 10_000


# %% price_advantage: as a difference
def price_advantage(paid, twap, side):
    saved = twap - paid
    return side * 1e4 * saved / twap


# %% price_advantage: in two branches
def price_advantage(paid, twap, side):
    ratio = paid / twap
    return np.where(side == 1, 1 - ratio, ratio - 1) * 1e4


# %% average_price: by a mask
def average_price(fills, prices):
    traded = fills > 0
    if not traded.any():
        return np.nan
    return (fills[traded] * prices[traded]).sum() / fills.sum()


# %% average_price: by a loop
def average_price(fills, prices):
    shares = money = 0.0
    for tick in range(len(fills)):
        if fills[tick] > 0:
            shares += fills[tick]
            money += fills[tick] * prices[tick]
    return money / shares if shares else np.nan


# %% average_price: with numpy's weighted average
def average_price(fills, prices):
    if not fills.any():
        return np.nan
    return np.average(np.nan_to_num(prices), weights=fills)


# %% even_schedule: differences of what is due
def even_schedule(amount, steps):
    due = amount * np.arange(steps + 1) // steps
    return np.diff(due)


# %% even_schedule: by a loop
def even_schedule(amount, steps):
    trades = []
    done = 0
    for step in range(1, steps + 1):
        due = amount * step // steps
        trades.append(due - done)
        done = due
    return np.array(trades)


# %% even_schedule: with the remainder
def even_schedule(amount, steps):
    base, rest = divmod(amount, steps)
    extra = [rest * (step + 1) // steps - rest * step // steps for step in range(steps)]
    return base + np.array(extra)
