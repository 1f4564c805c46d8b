"""Right answers of notebook 07, by exercise; the first of each is the model solution."""


# %% double_targets: by indices
def double_targets(reward, done, own, older, gamma=1.0):
    best = own.argmax(axis=1)
    ahead = older[np.arange(len(own)), best]
    return reward + gamma * np.where(done, 0.0, ahead)


# %% double_targets: a loop over transitions
def double_targets(reward, done, own, older, gamma=1.0):
    targets = []
    for row, paid in enumerate(reward):
        values = list(own[row])
        ahead = 0.0 if done[row] else older[row][values.index(max(values))]
        targets.append(paid + gamma * ahead)
    return np.array(targets)


# %% double_targets: where something follows
def double_targets(reward, done, own, older, gamma=1.0):
    target = reward.astype(float)
    on = ~done
    target[on] += gamma * older[on, own[on].argmax(axis=1)]
    return target


# %% explore_with: arrays
def explore_with(best, noise, epsilon, actions):
    if not epsilon:
        return best
    drawn = (noise / epsilon * actions).astype(int)
    return np.where(noise < epsilon, drawn, best)


# %% explore_with: a loop over decisions
def explore_with(best, noise, epsilon, actions):
    chosen = []
    for row, number in enumerate(noise):
        chosen.append(int(number / epsilon * actions) if number < epsilon else int(best[row]))
    return np.array(chosen)


# %% explore_with: by the borders of the actions
def explore_with(best, noise, epsilon, actions):
    chosen = best.copy()
    borders = epsilon * np.arange(1, actions) / actions
    is_random = noise < epsilon
    chosen[is_random] = np.searchsorted(borders, noise[is_random], side="right")
    return chosen


# %% ReplayBuffer: a deque
from collections import deque


class ReplayBuffer:
    def __init__(self, size):
        self.kept = deque(maxlen=size)

    def add(self, item):
        self.kept.append(item)

    def __len__(self):
        return len(self.kept)

    def items(self):
        return list(self.kept)

    def sample(self, count, rng):
        return [self.kept[at] for at in rng.integers(len(self.kept), size=count)]


# %% ReplayBuffer: a list
class ReplayBuffer:
    def __init__(self, size):
        self.size, self.kept = size, []

    def add(self, item):
        self.kept = [*self.kept, item][-self.size :]

    def __len__(self):
        return len(self.kept)

    def items(self):
        return self.kept

    def sample(self, count, rng):
        return [self.kept[int(number * len(self.kept))] for number in rng.random(count)]


# %% ReplayBuffer: a ring
class ReplayBuffer:
    def __init__(self, size):
        self.ring, self.added = [None] * size, 0

    def add(self, item):
        self.ring[self.added % len(self.ring)] = item
        self.added += 1

    def __len__(self):
        return min(self.added, len(self.ring))

    def items(self):
        size = len(self.ring)
        return [self.ring[at % size] for at in range(self.added - len(self), self.added)]

    def sample(self, count, rng):
        return list(rng.choice(self.items(), size=count))
