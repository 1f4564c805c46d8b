"""Right answers of notebook 03, by exercise; the first of each is the model solution."""


# %% step_fills: with minimum
def step_fills(request, volumes, limit):
    return np.minimum(request / len(volumes), limit * volumes)


# %% step_fills: tick by tick
def step_fills(request, volumes, limit):
    fills = []
    for volume in volumes:
        fills.append(min(request / len(volumes), limit * volume))
    return np.array(fills)


# %% step_fills: what is cut
def step_fills(request, volumes, limit):
    even = np.full(len(volumes), request / len(volumes))
    cut = np.clip(even - limit * volumes, 0, None)
    return even - cut


# %% count_steps: from cell to cell
def count_steps(start, end, ticks_per_step):
    return (end - 1) // ticks_per_step - start // ticks_per_step + 1


# %% count_steps: the cells as a set
def count_steps(start, end, ticks_per_step):
    return len({tick // ticks_per_step for tick in range(start, end)})


# %% count_steps: by the grid
def count_steps(start, end, ticks_per_step):
    begin = start - start % ticks_per_step
    return len(range(begin, end, ticks_per_step))


# %% Sticky: with where
class Sticky(OrderExecution):
    def step(self, state, action):
        return super().step(state, np.where(state.known.is_last_step, action, action / 2))


# %% Sticky: by a factor
class Sticky(OrderExecution):
    def step(self, state, action):
        factor = np.full(len(action), 0.5)
        factor[state.known.is_last_step] = 1.0
        return super().step(state, factor * action)


# %% Sticky: by the steps that are left
class Sticky(OrderExecution):
    def step(self, state, action):
        known = state.known
        amounts = [asked if left == 1 else 0.5 * asked for asked, left in zip(action, known.num_steps - known.step)]
        return OrderExecution.step(self, state, np.array(amounts))
