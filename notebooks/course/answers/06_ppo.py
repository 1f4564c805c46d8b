"""Right answers of notebook 06, by exercise; the first of each is the model solution."""


# %% advantages: from the end
def advantages(rewards, values, gamma, weight):
    found = np.zeros(len(rewards))
    after = value_after = 0.0
    for step in reversed(range(len(rewards))):
        surprise = rewards[step] + gamma * value_after - values[step]
        after = surprise + gamma * weight * after
        value_after = values[step]
        found[step] = after
    return found


# %% advantages: surprises first
def advantages(rewards, values, gamma, weight):
    surprises = rewards + gamma * np.append(values[1:], 0.0) - values
    found = list(surprises)
    for step in range(len(found) - 2, -1, -1):
        found[step] = surprises[step] + gamma * weight * found[step + 1]
    return np.array(found)


# %% advantages: as sums
def advantages(rewards, values, gamma, weight):
    nexts = np.append(values, 0.0)[1:]
    surprises = rewards + gamma * nexts - values
    fade = gamma * weight
    return np.array([sum(fade**i * one for i, one in enumerate(surprises[step:])) for step in range(len(values))])


# %% clipped_objective: as written
def clipped_objective(new, old, advantage, clip):
    ratio = np.exp(new - old)
    return np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()


# %% clipped_objective: by the sign of the advantage
def clipped_objective(new, old, advantage, clip):
    ratio = np.exp(new) / np.exp(old)
    good = np.minimum(ratio, 1 + clip)
    bad = np.maximum(ratio, 1 - clip)
    return np.mean(advantage * np.where(advantage == np.abs(advantage), good, bad))


# %% clipped_objective: decision by decision
def clipped_objective(new, old, advantage, clip):
    total = 0.0
    for now, before, worth in zip(new, old, advantage):
        ratio = np.exp(now - before)
        near = min(max(ratio, 1 - clip), 1 + clip)
        total += min(ratio * worth, near * worth)
    return total / len(advantage)


# %% entropies: with logarithms of probabilities
def entropies(scores):
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -(np.exp(log_p) * log_p).sum(axis=1)


# %% entropies: row by row
def entropies(scores):
    found = []
    for row in scores:
        powers = np.exp(row - max(row))
        p = powers / powers.sum()
        p = p[np.flatnonzero(p)]
        found.append(-(p * np.log(p)).sum())
    return np.array(found)


# %% entropies: with scipy
def entropies(scores):
    from scipy.special import entr, softmax

    return entr(softmax(scores, axis=1)).sum(axis=1)
