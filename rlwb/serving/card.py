"""The model card of a bundle: what the policy is, what it was trained on, and what it is good for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlwb.experiment.config import RunConfig, label
from rlwb.serving.spec import BundleSpec

_PARTS = ("algorithm", "network", "state_interpreter", "action_interpreter", "objective")


def render_card(
    spec: BundleSpec, config: RunConfig, *, headline: str, own: str = "", caveats: tuple[str, ...] = ()
) -> str:
    """Return the card of a bundle as Markdown.

    Parameters
    ----------
    spec
        The specification, apart from the hashes of the files.
    config
        The configuration of the policy.
    headline
        The table of the run's backtest, with its notes.
    own
        The result of the exported checkpoint by itself, in words.
    caveats
        Which rules could not act in the backtest.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("rlwb.serving"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        autoescape=False,
    )
    rules, calendar = config.execution.rules, spec.calendar
    parts = [(name.replace("_", " "), _told(getattr(config, name))) for name in _PARTS]
    parts += [("features", ", ".join(config.features.columns)), ("ticks a step", str(config.execution.ticks_per_step))]
    least, most = spec.seen.steps
    moves = any(getattr(rules, f"{name}_impact_bps") for name in ("temporary", "permanent", "transient"))
    content: str = templates.get_template("card.md").render(
        title=spec.origin.name,
        spec=spec,
        origin=spec.origin,
        seen=spec.seen,
        parts=parts,
        rules=rules.describe(),
        steps=str(most) if least == most else f"{least} to {most}",
        bar=_minutes(calendar["tick_minutes"]),
        hours=f"{', '.join('-'.join(pair) for pair in calendar['segments'])} {calendar['timezone'] or ''}".strip(),
        headline=headline.rstrip(),
        own=own,
        caveats=caveats,
        impact=(
            "Its rules let a fill move the price, by a law that was assumed or fitted."
            if moves
            else "Its fills do not move the price, so that large orders look better in it than they would be."
        ),
        number=lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.4g}",
        percent=lambda value: f"{100 * value:.3g} %",
    )
    return content


def own_result(config: RunConfig, row: Mapping[str, Any]) -> str:
    """Return the figures of one policy of a summary in words."""
    figure, rules = config.judged_by if config.judged_by != "objective" else "pa", config.execution.rules
    low, high = row[f"{figure}_lo"], row[f"{figure}_hi"]
    interval = f" (interval [{low:.2f}, {high:.2f}])" if low == low else ""
    mean = row["pa_net" if figure == "pa_net" else "pa_mean"]
    return (
        f"mean {rules.name_judged('PA')} {mean:.2f} bp{interval} over {row['orders']:,.0f} test orders, of which "
        f"{100 * row['win_rate']:.1f} % were better than {rules.benchmark_title}."
    )


def _told(part: Any) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in part.settings.items() if value is not None)
    return f"{label(part)} ({settings})" if settings else label(part)


def _minutes(value: float) -> str:
    return f"{value:g} minutes" if value >= 1 else f"{value * 60:g} seconds"
