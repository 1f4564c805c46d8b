"""Right answers of notebook 08, by exercise; the first of each is the model solution."""


# %% oracle_ticks: the cheapest tick of a signed price
def oracle_ticks(price, side):
    return np.nanargmin(np.where(side[:, None] == 1, price, -price), axis=1)


# %% oracle_ticks: order by order
def oracle_ticks(price, side):
    ticks = []
    for number, row in enumerate(price):
        known = [tick for tick, value in enumerate(row) if value == value]
        best = min if side[number] == 1 else max
        ticks.append(best(known, key=lambda tick: row[tick]))
    return np.array(ticks)


# %% oracle_ticks: each side by itself
def oracle_ticks(price, side):
    cheapest = np.where(np.isnan(price), np.inf, price).argmin(axis=1)
    dearest = np.where(np.isnan(price), -np.inf, price).argmax(axis=1)
    return np.where(side == 1, cheapest, dearest)


# %% distillation_loss: the logarithm of a sum
def distillation_loss(scores, teacher):
    scores = scores - scores.max(axis=1, keepdims=True)
    total = np.log(np.exp(scores).sum(axis=1))
    return (total - scores[np.arange(len(scores)), teacher]).mean()


# %% distillation_loss: state by state
def distillation_loss(scores, teacher):
    loss = 0.0
    for row, action in enumerate(teacher):
        above = [score - scores[row, action] for score in scores[row]]
        most = max(above)
        loss += most + np.log(sum(np.exp(one - most) for one in above))
    return loss / len(teacher)


# %% distillation_loss: by scipy
def distillation_loss(scores, teacher):
    from scipy.special import log_softmax

    logs = log_softmax(scores, axis=1)
    return -np.mean([logs[row, action] for row, action in enumerate(teacher)])


# %% heard: weighted counts
def heard(answer, state, chance, states):
    yes = np.bincount(state, chance * answer, minlength=states)
    all_ = np.bincount(state, chance, minlength=states)
    with np.errstate(invalid="ignore"):
        return yes / all_


# %% heard: state by state
def heard(answer, state, chance, states):
    shares = []
    for number in range(states):
        here = state == number
        total = chance[here].sum()
        shares.append((chance[here] * answer[here]).sum() / total if total else np.nan)
    return np.array(shares)


# %% heard: by pandas
def heard(answer, state, chance, states):
    table = pd.DataFrame({"state": state, "yes": chance * answer, "all": chance})
    by_state = table.groupby("state")
    return (by_state["yes"].sum() / by_state["all"].sum()).reindex(range(states)).to_numpy()
