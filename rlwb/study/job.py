"""The main program of a job: a command of rlwb that ends, with its children, when what started it is gone.

Called as ``python -m rlwb.study.job PIPE MODULE WORD…``. PIPE is the number of the reading end of a pipe of which the
starter holds the writing end, MODULE has the command line, and the process leads a group of its own.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _end_with_starter(pipe: int) -> None:
    while os.read(pipe, 1):  # nobody writes; the end comes with the starter's, however that was killed
        pass
    os.killpg(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the command in this process."""
    pipe, module, *sys.argv[1:] = sys.argv[1:]
    threading.Thread(target=_end_with_starter, args=(int(pipe),), daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
