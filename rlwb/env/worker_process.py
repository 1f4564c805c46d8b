"""What runs inside a worker process."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import select
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from rlwb.env.batch import write_row
from rlwb.env.runner import EpisodeRunner
from rlwb.env.shared import load_shared, shared_batch


def main(socket: int, function_file: int, observation_file: int) -> None:
    """Serve one environment over the socket until told to close or the main process is gone."""
    # An interrupt at the keyboard reaches all processes; the main process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    threading.Thread(target=_end_with_main_process, args=(socket,), daemon=True).start()
    connection = Connection(socket)
    server = _Server(function_file, observation_file)
    while not server.closed:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            answer = cloudpickle.dumps(("answer", server.answer(message)), protocol=pickle.HIGHEST_PROTOCOL)
        except BaseException as error:
            answer = cloudpickle.dumps(("error", (type(error).__name__, str(error), traceback.format_exc())))
        with contextlib.suppress(OSError):  # the main process is gone
            connection.send_bytes(answer)


def _end_with_main_process(socket: int) -> None:
    # Even while the environment computes: a hang-up is reported without reading from the socket.
    poll = select.poll()
    poll.register(socket, getattr(select, "POLLRDHUP", 0))
    poll.poll()
    os._exit(1)


class _Server:
    """Answers messages: first the setup, then ``(verb, value)``."""

    def __init__(self, function_file: int, observation_file: int) -> None:
        self.closed = False
        self._function_file = function_file
        self._observation_file = observation_file
        self._runner: EpisodeRunner | None = None
        self._row: tuple[Any, int] | None = None

    def answer(self, message: bytes) -> Any:
        if self._runner is None:
            data, places, loglevel = pickle.loads(message)
            self._runner = EpisodeRunner(load_shared(data, places, self._function_file), loglevel)
            return cloudpickle.dumps(self._runner.observation_space)
        verb, value = pickle.loads(message)
        if verb == "close":
            self.closed = True
            self._runner.close()
            return None
        if verb == "share":
            concurrency, row = value
            self._row = shared_batch(self._runner.observation_space, concurrency, self._observation_file), row
            return None
        outcome = self._runner.reset(*value) if verb == "reset" else self._runner.step(value)
        if self._row is not None and outcome.obs is not None:
            write_row(*self._row, outcome.obs)
            outcome.obs = None
        return outcome
