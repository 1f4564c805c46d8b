"""Right answers of notebook 11, by exercise; the first of each is the model solution."""


# %% standard_error: sums by day
def standard_error(pa, day):
    known = ~np.isnan(pa)
    pa, day = pa[known], day[known]
    names, place = np.unique(day, return_inverse=True)
    if len(names) < 2:
        return np.nan
    sums = np.bincount(place, weights=pa - pa.mean())
    return np.sqrt(len(names) / (len(names) - 1) * (sums**2).sum()) / len(pa)


# %% standard_error: a loop over days
def standard_error(pa, day):
    rows = [(day[at], value) for at, value in enumerate(pa) if value == value]
    if len({one for one, _ in rows}) < 2:
        return float("nan")
    mean = sum(value for _, value in rows) / len(rows)
    sums = {}
    for one, value in rows:
        sums[one] = sums.get(one, 0.0) + value - mean
    count = len(sums)
    return (count / (count - 1) * sum(one**2 for one in sums.values())) ** 0.5 / len(rows)


# %% standard_error: by pandas
def standard_error(pa, day):
    table = pd.DataFrame({"pa": pa, "day": day}).dropna()
    rest = table["pa"] - table["pa"].mean()
    sums = rest.groupby(table["day"]).sum()
    if len(sums) < 2:
        return np.nan
    return len(sums) ** 0.5 * sums.std() / len(table)


# %% fall_of_choice: a stable sort
def fall_of_choice(validation, test, count):
    best = np.argsort(-validation, kind="stable")[:count]
    return validation[best].mean() - test[best].mean()


# %% fall_of_choice: sorted pairs
def fall_of_choice(validation, test, count):
    known = [at for at, value in enumerate(validation) if value == value]
    best = sorted(known, key=lambda at: (-validation[at], at))[:count]
    return sum(validation[at] - test[at] for at in best) / len(best)


# %% fall_of_choice: by pandas
def fall_of_choice(validation, test, count):
    table = pd.DataFrame({"validation": validation, "test": test}).dropna(subset="validation")
    best = table.sort_values("validation", ascending=False, kind="stable").head(count)
    return best["validation"].mean() - best["test"].mean()


# %% look_interval: by ndtri
def look_interval(estimate, error, look, alpha=0.05):
    rate = alpha * 6 / (np.pi * look) ** 2
    reach = ndtri(1 - rate / 2) * error
    return estimate - reach, estimate + reach


# %% look_interval: by the lower tail
def look_interval(estimate, error, look, alpha=0.05):
    tail = 3 * alpha / (np.pi**2 * look**2)
    return estimate + ndtri(tail) * error, estimate - ndtri(tail) * error


# %% look_interval: by the standard library
def look_interval(estimate, error, look, alpha=0.05):
    from math import pi
    from statistics import NormalDist

    law = NormalDist(estimate, error)
    rate = alpha / (pi**2 / 6) / look**2
    return law.inv_cdf(rate / 2), law.inv_cdf(1 - rate / 2)
