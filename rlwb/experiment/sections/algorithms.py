"""What each algorithm has to itself."""

from __future__ import annotations

from rlwb.experiment.parameters import Section
from rlwb.experiment.sections.fields import Count, Positive, Share


class DQNConfig(Section):
    """What deep Q-learning has to itself; only with ``algorithm: dqn``.

    Parameters
    ----------
    n_step
        Rewards that are summed before the network's own guess stands for the rest.
    double
        Whether the network chooses the next action and its older copy values it, against overestimation.
    huber
        Errors beyond this, in deviations of the returns, count in proportion instead of squared; none squares all.
    target_every
        Gradient steps between two copies of the network for the targets; larger is steadier and slower.
    epsilon_start, epsilon_end
        Share of random actions while collecting, at first and at last.
    epsilon_iterations
        Iterations from the first to the last share.
    replay_size
        Most transitions kept; some 80 bytes each, in memory and in every checkpoint.
    """

    n_step: Count = 1
    double: bool = True
    huber: Positive | None = 1.0
    target_every: Count = 50
    epsilon_start: Share = 1.0
    epsilon_end: Share = 0.05
    epsilon_iterations: Count = 20
    replay_size: Count = 100_000


class OPDConfig(Section):
    """What oracle policy distillation has to itself; only with ``algorithm: opd``.

    Parameters
    ----------
    teacher_iterations
        Iterations that the teacher is trained for before the student begins, with the same settings as it; none means
        as many as train.iterations was when the run began.
    distillation
        Weight of the loss that draws the student to the teacher's actions. Larger imitates more; too large also copies
        what only the future tells.
    """

    teacher_iterations: Count | None = None
    distillation: Positive = 0.01
