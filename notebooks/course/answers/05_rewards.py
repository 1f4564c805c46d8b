"""Right answers of notebook 05, by exercise; the first of each is the model solution."""


# %% tick_rewards: with where
def tick_rewards(fills, prices, amount, twap, side):
    advantage = side * (1 - prices / twap) * 1e4
    return np.where(fills > 0, fills / amount * advantage, 0.0)


# %% tick_rewards: by a loop
def tick_rewards(fills, prices, amount, twap, side):
    rewards = []
    for fill, price in zip(fills, prices):
        rewards.append(side * 1e4 * fill / amount * (twap - price) / twap if fill else 0.0)
    return np.array(rewards)


# %% tick_rewards: in the traded ticks alone
def tick_rewards(fills, prices, amount, twap, side):
    rewards = np.zeros(len(fills))
    traded = np.flatnonzero(fills)
    rewards[traded] = side * fills[traded] * (1 / amount - prices[traded] / (twap * amount)) * 1e4
    return rewards


# %% speed_penalty: with squares
def speed_penalty(fills, amount, penalty):
    shares = fills / amount[:, None]
    return penalty * (shares**2).sum(axis=1)


# %% speed_penalty: order by order
def speed_penalty(fills, amount, penalty):
    found = []
    for own, whole in zip(fills, amount):
        found.append(penalty * sum((fill / whole) ** 2 for fill in own))
    return np.array(found)


# %% speed_penalty: as an inner product
def speed_penalty(fills, amount, penalty):
    squares = np.einsum("nt,nt->n", fills, fills)
    return penalty * squares / amount**2


# %% AgainstArrival: with where
class AgainstArrival(Reward):
    def reward(self, outcome):
        known = outcome.known
        advantage = known.side * (1 - outcome.step_price / outcome.arrival) * 1e4
        return np.where(outcome.fill > 0, outcome.fill / known.amount * advantage, 0.0)


# %% AgainstArrival: NaN to 0
class AgainstArrival(Reward):
    def reward(self, outcome):
        paid = np.nan_to_num(outcome.step_price)
        saved = outcome.known.side * outcome.fill * (outcome.arrival - paid)
        return 1e4 * saved / (outcome.arrival * outcome.known.amount)


# %% AgainstArrival: order by order
class AgainstArrival(Reward):
    def reward(self, outcome):
        rewards = np.zeros(len(outcome.fill))
        for i in np.flatnonzero(outcome.fill):
            share = outcome.fill[i] / outcome.known.amount[i]
            gain = 1e4 * (1 - outcome.step_price[i] / outcome.arrival[i])
            rewards[i] = share * gain if outcome.known.side[i] == 1 else -share * gain
        return rewards
