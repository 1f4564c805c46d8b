"""Right answers of notebook 02, by exercise; the first of each is the model solution."""


# %% discounted_returns: from the end
def discounted_returns(rewards, gamma):
    found = np.zeros(len(rewards))
    after = 0.0
    for step in reversed(range(len(rewards))):
        after = rewards[step] + gamma * after
        found[step] = after
    return found


# %% discounted_returns: by the definition
def discounted_returns(rewards, gamma):
    found = []
    for start in range(len(rewards)):
        found.append(sum(gamma ** (step - start) * rewards[step] for step in range(start, len(rewards))))
    return np.array(found)


# %% discounted_returns: as a product with a matrix
def discounted_returns(rewards, gamma):
    steps = np.arange(len(rewards))
    away = steps - steps[:, None]
    return np.where(away >= 0, float(gamma) ** away.clip(0), 0.0) @ rewards


# %% targets: with where
def targets(rewards, next_values, terminated, gamma):
    return rewards + np.where(terminated, 0.0, gamma * next_values)


# %% targets: step by step
def targets(rewards, next_values, terminated, gamma):
    found = []
    for reward, value, ended in zip(rewards, next_values, terminated):
        found.append(reward if ended else reward + gamma * value)
    return np.array(found)


# %% targets: the others in place of a copy
def targets(rewards, next_values, terminated, gamma):
    found = rewards.copy()
    goes_on = ~terminated
    found[goes_on] = rewards[goes_on] + gamma * next_values[goes_on]
    return found


# %% q_update: as written
def q_update(q, state, action, reward, next_state, terminated, alpha, gamma):
    target = reward if terminated else reward + gamma * q[next_state].max()
    new = q.copy()
    new[state, action] = q[state, action] + alpha * (target - q[state, action])
    return new


# %% q_update: a mean of old and new
def q_update(q, state, action, reward, next_state, terminated, alpha, gamma):
    ahead = 0.0 if terminated else gamma * max(q[next_state])
    new = np.array(q)
    new[state, action] = (1 - alpha) * q[state, action] + alpha * (reward + ahead)
    return new


# %% q_update: by what is added
def q_update(q, state, action, reward, next_state, terminated, alpha, gamma):
    surprise = reward - q[state, action]
    if not terminated:
        surprise = surprise + gamma * np.max(q, axis=1)[next_state]
    change = np.zeros_like(q)
    change[state, action] = alpha * surprise
    return q + change
