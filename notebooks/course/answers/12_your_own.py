"""Right answers of notebook 12, by exercise; the first of each is the model solution."""


# %% OverVWAP: arrays
class OverVWAP(Reward):
    def reward(self, outcome):
        known = outcome.known
        gain = known.side * (1 - outcome.step_price / outcome.vwap) * 1e4
        return np.where(outcome.fill > 0, gain * outcome.fill / known.amount, 0.0)


# %% OverVWAP: order by order
class OverVWAP(Reward):
    def reward(self, outcome):
        paid = []
        for row in range(len(outcome.fill)):
            share = outcome.fill[row] / outcome.known.amount[row]
            above = outcome.step_price[row] / outcome.vwap[row] - 1
            paid.append(-outcome.known.side[row] * above * share * 1e4 if share else 0.0)
        return np.array(paid)


# %% OverVWAP: where something was filled
class OverVWAP(Reward):
    def reward(self, outcome):
        paid, did = np.zeros(len(outcome.fill)), outcome.fill > 0
        value = outcome.fill * (outcome.vwap - outcome.step_price) / outcome.vwap * outcome.known.side
        paid[did] = 1e4 * value[did] / outcome.known.amount[did]
        return paid


# %% Halves: powers of one half
class Halves(ActionInterpreter):
    def __init__(self, count=5):
        self.count = count

    @property
    def action_space(self):
        return gym.spaces.Discrete(self.count)

    def interpret(self, known, action):
        share = np.where(action > 0, 0.5 ** (action - 1.0), 0.0)
        return known.position * np.where(known.is_last_step, 1.0, share)


# %% Halves: a table of shares
class Halves(ActionInterpreter):
    def __init__(self, count=5):
        self.shares = np.array([0.0, *[1 / 2**power for power in range(count - 1)]])

    @property
    def action_space(self):
        return gym.spaces.Discrete(len(self.shares))

    def interpret(self, known, action):
        return np.where(known.is_last_step, known.position, self.shares[action] * known.position)


# %% Halves: order by order
class Halves(ActionInterpreter):
    def __init__(self, count=5):
        self.action_space_ = gym.spaces.Discrete(count)

    @property
    def action_space(self):
        return self.action_space_

    def interpret(self, known, action):
        amounts = []
        for row, one in enumerate(action):
            share = 1.0 if known.is_last_step[row] else 2.0 / 2.0**one if one else 0.0
            amounts.append(share * known.position[row])
        return np.array(amounts)


# %% Bargain: arrays
class Bargain(Baseline):
    def act(self, obs, noise=None):
        close, rows = obs.bars("close"), np.arange(len(obs))
        better = obs.side * (close[rows, obs.tick - 1] - close[rows, obs.start]) < 0
        return np.where(obs.completes, obs.position, self.even(obs) * np.where(better, 2.0, 0.5))


# %% Bargain: order by order
class Bargain(Baseline):
    def act(self, obs, noise=None):
        amounts = self.even(obs) / 2
        for row, close in enumerate(obs.bars("close")):
            window = close[obs.start[row] : obs.tick[row]]
            if len(window) and obs.side[row] * window[-1] < obs.side[row] * window[0]:
                amounts[row] *= 4
        return np.where(obs.completes, obs.position, amounts)


# %% Bargain: each side by itself
class Bargain(Baseline):
    def act(self, obs, noise=None):
        close, rows = obs.bars("close"), np.arange(len(obs))
        first, last = close[rows, obs.start], close[rows, obs.tick - 1]
        better = np.where(obs.side == 1, last < first, last > first)
        asked = np.where(better, 2 * self.even(obs), self.even(obs) / 2)
        return np.where(obs.completes, obs.position, asked)
