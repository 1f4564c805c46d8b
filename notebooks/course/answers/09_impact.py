"""Right answers of notebook 09, by exercise; the first of each is the model solution."""


# %% impact_cost: by the definition
def impact_cost(shares, temporary, permanent):
    before = np.cumsum(shares) - shares
    return (shares * (temporary * shares + permanent * before)).sum()


# %% impact_cost: a loop
def impact_cost(shares, temporary, permanent):
    cost = filled = 0.0
    for share in shares:
        cost += share * (temporary * share + permanent * filled)
        filled += share
    return cost


# %% impact_cost: the closed form of what was filled
def impact_cost(shares, temporary, permanent):
    return permanent / 2 * np.sum(shares) ** 2 + (temporary - permanent / 2) * np.sum(np.square(shares))


# %% almgren_chriss: the formula
def almgren_chriss(ticks, kappa):
    if kappa == 0:
        return np.full(ticks, 1 / ticks)
    left = np.sinh(kappa * np.arange(ticks, -1, -1)) / np.sinh(kappa * ticks)
    return -np.diff(left)


# %% almgren_chriss: tick by tick
def almgren_chriss(ticks, kappa):
    from math import sinh

    shares, held = [], 1.0
    for tick in range(ticks):
        left = sinh(kappa * (ticks - 1 - tick)) / sinh(kappa * ticks) if kappa else 1 - (tick + 1) / ticks
        shares.append(held - left)
        held = left
    return np.array(shares)


# %% almgren_chriss: by the equation of the best schedule
def almgren_chriss(ticks, kappa):
    inside = ticks - 1
    matrix = np.eye(inside, k=1) + np.eye(inside, k=-1) - 2 * np.cosh(kappa) * np.eye(inside)
    right = np.zeros(inside)
    right[:1] = -1.0
    left = np.concatenate([[1.0], np.linalg.solve(matrix, right), [0.0]])
    return left[:-1] - left[1:]


# %% transient_cost: what is left of the moves
def transient_cost(shares, move, kept):
    cost = moved = 0.0
    for share in shares:
        moved *= kept
        cost += share * (moved + move * share / 2)
        moved += move * share
    return cost


# %% transient_cost: a quadratic form
def transient_cost(shares, move, kept):
    ticks = np.arange(len(shares))
    return move / 2 * shares @ kept ** abs(ticks[:, None] - ticks) @ shares


# %% transient_cost: pairs of fills
def transient_cost(shares, move, kept):
    cost = 0.0
    for later, share in enumerate(shares):
        earlier = sum(shares[at] * kept ** (later - at) for at in range(later))
        cost += move * share * (earlier + share / 2)
    return cost
