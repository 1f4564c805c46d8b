"""A launcher whose jobs run in this process, one after another, before anybody looks at them."""

from __future__ import annotations

import traceback

import rlwb.cli
from rlwb.study.launch import Handle, Job, Launcher


class Inline(Launcher):
    interval = 0.0

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers

    def start(self, job: Job) -> Handle:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            rlwb.cli.app(list(job.words), standalone_mode=False)
            return _Ended(0)
        except Exception as error:
            job.log.write_text(f"{traceback.format_exc()}\nrlwb: {error}\n")
            return _Ended(2)

    def close(self) -> None:
        return


class _Ended:
    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self) -> int:
        return self.code

    def stop(self) -> None:
        return
