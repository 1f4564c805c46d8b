"""The monitor of a training: how far it is, its curves, and buttons to pause, resume and stop it."""

from __future__ import annotations

import asyncio
import io
import os
from base64 import b64encode
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from rlwb.errors import RlwbError
from rlwb.experiment.control import Request, ask
from rlwb.experiment.monitor import BackgroundTraining, TrainingState, read_training
from rlwb.experiment.notebook import NotebookStage
from rlwb.experiment.run import RunDirectory
from rlwb.widgets.panel import Panel, in_turn, is_live

if TYPE_CHECKING:
    from ipywidgets import Button, Widget
    from matplotlib.figure import Figure

#: Seconds between two looks at the run's directory.
LOOK_SECONDS = 1.0
#: Standing of a run to the style of its bar.
_STYLES = {"running": "info", "pausing": "warning", "paused": "warning", "stopping": "warning", "failed": "danger"}
_BUTTONS = {
    "start": ("Start", "play", "Train in the background, from where the training stopped"),
    "pause": ("Pause", "pause", "Wait after this iteration"),
    "resume": ("Resume", "play", "Go on after a pause"),
    "stop": ("Stop", "stop", "End after this iteration; what is done is kept"),
}


class TrainingMonitor(Panel):
    """A live view of a training, with buttons to pause, resume and stop it.

    It reads the run's directory once a second, so that it also watches a training that another notebook, terminal or
    machine does. Elsewhere than in a notebook's front end it is the figure of the curves as they are now.

    Parameters
    ----------
    run
        The run's directory.
    start
        Starts the training in the background; None for a run that is only watched.
    """

    def __init__(
        self, run: RunDirectory | str | os.PathLike[str], start: Callable[[], BackgroundTraining] | None = None
    ) -> None:
        super().__init__()
        self.training: BackgroundTraining | None = None
        self._start = start
        self._task: asyncio.Task[None] | None = None
        self._has_worked = False  # whether the training that was started here has been seen at work
        self._drawn: tuple[str, int, int] | None = None
        self._standing = ""
        self._answered: str | None = None  # the standing in which a press was answered
        self._parts: dict[str, Any] = {}
        self._buttons: dict[str, Button] = {}
        self.run = run if isinstance(run, RunDirectory) else RunDirectory.open(run)  # last: refused, it can be closed

    def figure(self) -> Figure:
        from rlwb.evaluation.training_plots import training_progress

        return _figure(read_training(self.run), training_progress)

    def start(self) -> None:
        """Start the training in the background; an `RlwbError` where it cannot start."""
        assert self._start is not None, "the monitor was made to watch alone"
        self.training, self._has_worked = self._start(), False

    def build(self) -> Widget:
        from ipywidgets import HTML, Button, FloatProgress, HBox, Layout, VBox

        names = [name for name in _BUTTONS if name != "start" or self._start is not None]
        self._parts = {
            "text": HTML(),
            "bar": FloatProgress(min=0.0, max=1.0, layout=Layout(width="100%")),
            "answer": HTML(),
            "curves": HTML(layout=Layout(overflow="hidden")),
        }
        for name in names:
            title, icon, tooltip = _BUTTONS[name]
            self._buttons[name] = Button(description=title, icon=icon, tooltip=tooltip)
            self._buttons[name].on_click(lambda _, name=name: self._press(name))
        self.refresh()
        self._task = _every(LOOK_SECONDS, self.refresh)
        parts = self._parts
        buttons = HBox(list(self._buttons.values()))
        return VBox([parts["text"], parts["bar"], buttons, parts["answer"], parts["curves"]])

    def wait_for_figures(self) -> None:
        """Wait until a training in the background has validated once, so that there is something to show.

        An `RlwbError` where it failed before that.
        """
        if self.training is not None:
            self.training.wait_for_figures()

    @in_turn
    def refresh(self, *, draws: bool = True) -> None:
        """Read the directory, and show what has changed; without `draws` all but the curves."""
        if not self._parts:
            return
        try:
            state = read_training(self.run)
        except (RlwbError, OSError, LookupError) as error:  # the directory is gone, or damaged
            self._say(f"{self.run.path} cannot be read: {error}")
            return
        parts, alive = self._parts, self.training is not None and self.training.is_alive()
        self._has_worked |= state.is_working
        starts = alive and not (state.is_working or self._has_worked)  # a process that ends says what it came to
        begun = "starting", "A process of its own starts and loads the market, which takes some seconds."
        text, advice = begun if starts else (state.sentence(), state.advice)
        if self._start is not None and state.standing in ("created", "interrupted", "failed") and not alive:
            advice = f"{advice}; or here with Start, which does no other stage." if advice else "Start begins it here."
        elif alive and state.standing == "running":
            advice = "It trains in a process of its own, and goes on when this notebook is closed."
        said = f"<b>{escape(self.run.path.name)}</b> {escape(text)}<br>{escape(advice)}"
        _set(parts["text"], value=f"<div role='status' style='line-height: 1.4'>{said}</div>")
        if self._answered is not None and state.standing != self._answered:
            self._say("")  # what was asked for has happened
        self._standing = state.standing
        share = state.iteration / state.iterations
        _set(parts["bar"], value=share, bar_style=_STYLES.get(state.standing, "success"))
        for name, button in self._buttons.items():
            can_start = not (state.is_working or alive or state.standing == "finished")
            _set(button, disabled=not (can_start if name == "start" else name in state.requests))
        if self.training is not None and not alive:
            try:
                self.training.check()
            except RlwbError as error:
                self._say(str(error))
        drawn = (state.part, len(state.train), len(state.validation))
        if draws and drawn != self._drawn:
            self._drawn = drawn
            from rlwb.evaluation.training_plots import training_progress

            _set(parts["curves"], value=_image(_figure(state, training_progress), state.sentence()))

    def close(self) -> None:
        """End the looks at the directory, and close the widget; the training itself goes on."""
        if self._task is not None:
            self._task.cancel()
        self._task, self._drawn, self._parts, self._buttons = None, None, {}, {}
        super().close()

    @in_turn
    def _press(self, name: str) -> None:
        try:
            if name == "start":
                self.start()
                self._say("")
            else:
                request: Request = name  # type: ignore[assignment]
                self._say(ask(self.run, request))
        except RlwbError as error:
            self._say(str(error))
        self._answered = None
        self.refresh(draws=False)  # a press may come in another thread than that of the cells, which draws too
        self._answered = self._standing

    def _say(self, text: str) -> None:
        self._answered = None
        _set(self._parts["answer"], value=f"<div role='status'>{escape(text)}</div>")


def train_here_or_watch(stage: NotebookStage) -> TrainingMonitor:
    """Train the policy of a notebook's run: in the background below its monitor, or where nobody watches here.

    In a notebook's front end it returns at once, and the kernel is free. Headless it trains to the end, as
    `rlwb.experiment.training.train_policy` does.

    Raises
    ------
    ConfigError
        Where the training cannot start.
    """
    from rlwb.experiment.training import train_policy

    if not is_live():
        stage.do(train_policy)
        return TrainingMonitor(stage.run)
    monitor = TrainingMonitor(stage.run, lambda: BackgroundTraining(stage.run, stage.config))
    monitor.start()
    return monitor


def _figure(state: TrainingState, draw: Callable[..., Figure]) -> Figure:
    return draw(state.train, state.validation, judged_by=state.judged_by)


def _set(widget: Widget, **values: Any) -> None:
    """Set what differs: each setting is a message to the browser."""
    for name, value in values.items():
        if getattr(widget, name) != value:
            setattr(widget, name, value)


def _image(figure: Figure, text: str) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    content = b64encode(file.getvalue()).decode()
    return f"<img style='max-width: 100%' alt='{escape(text, quote=True)}' src='data:image/png;base64,{content}'>"


def _every(seconds: float, call: Callable[[], None]) -> asyncio.Task[None] | None:
    """Call a function again and again in the loop of the kernel, between its cells; None where there is no loop."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(seconds)
            call()

    try:
        return asyncio.get_running_loop().create_task(go_on())
    except RuntimeError:
        return None
