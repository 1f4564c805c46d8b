"""Right answers of notebook 04, by exercise; the first of each is the model solution."""


# %% return_so_far: by what is seen
def return_so_far(closes, tick):
    seen = closes[:tick]
    return (seen[-1] / seen[0] - 1) * 1e4 if len(seen) > 0 else 0.0


# %% return_so_far: by the place of the last close
def return_so_far(closes, tick):
    last = max(tick - 1, 0)
    return 1e4 * (closes[last] - closes[0]) / closes[0]


# %% return_so_far: as a product of one-tick returns
def return_so_far(closes, tick):
    growth = 1.0
    for now in range(1, tick):
        growth = growth * closes[now] / closes[now - 1]
    return 1e4 * growth - 1e4


# %% TimeAndInventory: side by side
class TimeAndInventory(StateInterpreter):
    @property
    def observation_space(self):
        return gym.spaces.Box(0, 1, (2,), np.float32)

    def interpret(self, known):
        time = 1 - known.step / known.num_steps
        return np.stack([time, known.position / known.amount], axis=1).astype(np.float32)


# %% TimeAndInventory: into an empty array
class TimeAndInventory(StateInterpreter):
    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)

    def interpret(self, known):
        seen = np.empty((len(known), 2), dtype=np.float32)
        seen[:, 0] = (known.num_steps - known.step) / known.num_steps
        seen[:, 1] = known.position / known.amount
        return seen


# %% TimeAndInventory: order by order
class TimeAndInventory(StateInterpreter):
    @property
    def observation_space(self):
        return gym.spaces.Box(0, 1, (2,), np.float32)

    def interpret(self, known):
        rows = []
        for step, steps, left, amount in zip(known.step, known.num_steps, known.position, known.amount):
            rows.append([(steps - step) / steps, left / amount])
        return np.array(rows, dtype=np.float32)


# %% FourSpeeds: with where
class FourSpeeds(ActionInterpreter):
    @property
    def action_space(self):
        return gym.spaces.Discrete(4)

    def interpret(self, known, action):
        even = known.position / (known.num_steps - known.step)
        return np.where(known.completes, known.position, np.minimum(action * even, known.position))


# %% FourSpeeds: as a share of what is left
class FourSpeeds(ActionInterpreter):
    action_space = gym.spaces.Discrete(4)

    def interpret(self, known, action):
        share = np.clip(action / (known.num_steps - known.step), None, 1)
        share[known.completes] = 1.0
        return share * known.position


# %% FourSpeeds: order by order
class FourSpeeds(ActionInterpreter):
    @property
    def action_space(self):
        return gym.spaces.Discrete(4)

    def interpret(self, known, action):
        amounts = []
        for i, choice in enumerate(action):
            steps_left = known.num_steps[i] - known.step[i]
            asked = choice * known.position[i] / steps_left
            amounts.append(known.position[i] if known.completes[i] else min(asked, known.position[i]))
        return np.array(amounts)
