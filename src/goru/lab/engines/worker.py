"""The process that executes one run.

    python -P worker.py PARENT RUNS ENGINE SECONDS      the configuration is read from standard input

Before anything else, the process makes sure to die with its parent: importing torch takes longer than a worker may
outlive its parent. So at first this module imports only the standard library.
"""

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """End this process within a second of the parent's death."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:  # for systems without prctl, and for a parent that died before it was called
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: list[str]) -> int:
    parent, runs, engine, seconds = arguments
    die_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; it sends SIGTERM

    from pathlib import Path

    from goru.lab.errors import LabError
    from goru.lab.training.config import from_json
    from goru.lab.training.loop import train
    from goru.lab.training.signals import StopOnSignal

    with StopOnSignal(signal.SIGTERM) as stop:
        try:
            config = from_json(sys.stdin.read(), "standard input")
            train(config, Path(runs), checkpoint_seconds=float(seconds), engine=engine, stop=stop)
        except LabError as error:
            print(error, file=sys.stderr)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
