"""What the yardsticks in this folder have in common: they answer the questions of `headroom bench`."""

import json
import sys
import time


def answer(run, **others):
    """Reads lines from standard input until "quit": "run N" calls run() N times and is answered with the seconds of each
    as a JSON list, the name of one of the others with what it returns."""
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
