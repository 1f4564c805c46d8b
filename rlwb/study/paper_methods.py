"""What a paper says of the parts that a run used, and which works describe them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlwb.experiment.config import RunConfig
from rlwb.study.paper_document import Cite, Code, Line, Piece

#: Kind and name of a part to what it is, as the end of a sentence, and the works on it.
_PARTS: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    ("algorithm", "ppo"): ("proximal policy optimisation", ("schulman2017",)),
    ("algorithm", "dqn"): ("deep Q-learning", ("mnih2015",)),
    ("algorithm", "opd"): ("oracle policy distillation", ("fang2021",)),
    ("algorithm", "pathwise"): (
        "direct optimisation through the market's replay, whose prices do not depend on the policy",
        ("buehler2019",),
    ),
    ("algorithm", "all_actions"): (
        "policy gradients from the worth of every action of every decision, which a replay of the market tells exactly",
        ("ciosek2018", "asadi2017", "mao2019"),
    ),
    ("algorithm", "tianshou"): ("an algorithm of the library tianshou", ("weng2022",)),
    ("algorithm", "qlib"): ("weights that were trained in Qlib", ("yang2020",)),
    ("network", "recurrent"): ("a network with gated recurrent units over the bars", ("cho2014",)),
    ("network", "convolution"): ("a network of dilated causal convolutions over the bars", ("vandenoord2016",)),
    ("network", "attention"): ("a causal transformer over the bars", ("vaswani2017",)),
    ("network", "mlp"): ("a network of fully connected layers", ()),
    ("network", "signals"): (
        "a small network on ridge regressions of exponential averages of returns, fitted on the training days",
        ("hoerl1970",),
    ),
    ("network", "qlib_recurrent"): ("the recurrent network of Qlib for order execution", ("yang2020", "cho2014")),
    ("reward", "pa_penalty"): (
        "the price advantage of each step's fills less a penalty on fast trading",
        ("fang2021",),
    ),
    ("reward", "sparse"): ("the sign of the order's price advantage at its end", ()),
    ("action_interpreter", "categorical"): ("one of a few fixed shares of the order", ()),
    ("action_interpreter", "twap_relative"): ("a ratio of the rate that would finish the order evenly", ()),
    ("action_interpreter", "position_share"): ("a share of what is left", ()),
    ("state_interpreter", "full_history"): ("the bars so far, the order and its own past trades", ()),
    ("state_interpreter", "current_step"): ("the order and how much of it and of the time is left", ()),
    ("baseline", "twap"): ("TWAP (the same amount in every interval)", ()),
    ("baseline", "vwap"): ("VWAP (along the volume profile of earlier days)", ("berkowitz1988",)),
    ("baseline", "pov"): ("POV (a share of the volume)", ()),
    ("baseline", "almgren_chriss"): ("the Almgren-Chriss trajectory", ("almgren2000",)),
    ("baseline", "bertsimas_lo"): ("the Bertsimas-Lo strategy", ("bertsimas1998",)),
    ("baseline", "mpc"): ("model predictive control (the best plan by a forecast, made anew at each step)", ()),
    ("baseline", "forecast"): ("the forecast rule (a linear forecast, and one threshold a step)", ("hoerl1970",)),
    ("baseline", "forecast_trees"): ("the same rule with boosted trees for a forecast", ()),
    ("baseline", "filter_optimum"): (
        "the filter optimum (the best policy for who knows the law of the synthetic market)",
        ("kalman1960",),
    ),
    ("baseline", "hindsight"): ("a ceiling that knows all prices of the day, which no policy can pass", ()),
    ("baseline", "hindsight_uncapped"): ("the same ceiling without the cap on volume", ()),
}


def told(kind: str, name: str) -> list[Piece]:
    """Return what a part is, with its works; of a part of the user's own its name."""
    if (kind, name) not in _PARTS:
        return ["the run's own part ", Code(name)]
    words, keys = _PARTS[kind, name]
    return [words, *([Cite(keys)] if keys else [])]


def method(config: RunConfig, setting: Mapping[str, int], rules: Piece, *, in_blocks: bool = False) -> Iterator[Line]:
    """Yield the paragraphs on the method.

    Parameters
    ----------
    setting
        Dotted name to the number of the figure of a setting's value.
    rules
        The rules of execution in words.
    in_blocks
        Whether intervals were of blocks of days.
    """
    line: list[Piece] = ["Each order is executed in steps of ", setting["execution.ticks_per_step"], " bars. "]
    line += ["Before a step the policy sees ", *told("state_interpreter", config.state_interpreter.name)]
    line += [", and chooses ", *told("action_interpreter", config.action_interpreter.name), ". It is "]
    line += [*told("network", config.network.name), ", trained by ", *told("algorithm", config.algorithm.name)]
    if config.algorithm.name != "qlib":
        line += [" with the optimiser Adam", Cite(("kingma2015",))]
    line += [" to maximise ", *told("reward", config.reward.name), ": ", setting["train.iterations"], " iterations of "]
    line += [setting["train.episodes_per_iteration"], " orders each. Execution follows these rules: "]
    yield [*line, rules, "."]

    line = ["Days are split in time: training comes first, then validation, then test. At most "]
    line += [setting["backtest.top"], " checkpoints, those with the best mean on the validation orders, are judged on "]
    line += ["the test orders, and the mean of their results counts. "]
    for at, name in enumerate(dict.fromkeys(one.name for one in config.baselines)):
        line += [", " if at else "They stand beside ", *told("baseline", name)]
    line += [
        ". " if config.baselines else "",
        "Price advantage, win rate and gain-loss ratio are those of the literature",
    ]
    line += [Cite(("fang2021",)), "; CVaR is the mean of the worst orders", Cite(("rockafellar2000",))]
    if config.execution.rules.benchmark == "arrival":
        line += ["; costs against arrival are the implementation shortfall", Cite(("perold1988",))]
    line += [". Intervals are bootstrapped", Cite(("efron1979", "cameron2008")), " with "]
    line += [
        setting["backtest.bootstrap_samples"],
        " resamples of whole days, because orders of a day share its prices",
    ]
    if in_blocks:
        line += ["; days that follow one another are drawn together in blocks", Cite(("politis1992",))]
        line += [", and the interval is as wide as their dependence asks for", Cite(("lazarus2018",))]
    yield [*line, "."]
