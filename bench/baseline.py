"""The child process's side of the baselines that `headroom bench` starts."""

import json
import signal
import sys
import time

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the program without a traceback


def answer(run, **others):
    """Answers each line on standard input with one line of JSON, until "quit": "run N" with the seconds of N calls of
        run(), the name of one of `others` with that function's result."""
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "run":
            seconds = []
            for _ in range(int(rest[0])):
                start = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - start)
            print(json.dumps(seconds), flush=True)
        elif word in others:
            print(json.dumps(others[word]()), flush=True)
        else:
            break
