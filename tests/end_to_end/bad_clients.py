"""Hostile clients, and an ordinary one that the server must answer meanwhile. Run it by hand:

    python tests/end_to_end/bad_clients.py http://127.0.0.1:8080 --requests 10000
"""

import argparse
import contextlib
import json
import random
import socket
import threading
import time
import urllib.request

import train_runs

FIELDS = ["model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "n", "echo", "logprobs", "stream",
          "routing", "stream_options", "presence_penalty", "suffix", "user", "\u2028", "", "best_of"]
VALUES = [None, True, False, 0, -1, 1, 3, 2**31, 2**63, -(2**63), 2**64, 10**400, 1e308, -1e-308, 0.5, "", "a", "\0", "\U0001f600",
          "x" * 5000, [], {}, [[]], [[1, 2], [3]], [1, "a"], [None], [1] * 5000, {"include_usage": 1}, [["a"]]]


def valid(draw):
    request = {"prompt": draw.choice(["the head", [1, 2, 3], ["a", "b"], [[1], [2, 3]]]), "max_tokens": draw.randrange(1, 6)}
    for name, values in {"temperature": [0, 1.5], "n": [1, 3], "stop": ["t", ["e ", "\n"]], "logprobs": [0, 5],
                         "echo": [True], "stream": [True], "routing": [True]}.items():
        if draw.random() < 0.3:
            request[name] = draw.choice(values)
    return request


def body(draw):
    """Returns a request body, valid or not."""
    request = valid(draw)
    kind = draw.randrange(6)
    if kind <= 2:
        for _ in range(draw.randrange(1, 4)):
            request[draw.choice(FIELDS)] = draw.choice(VALUES)
    elif kind == 3:
        request["stop"] = [str(i) for i in range(draw.choice([17, 5000]))]
    text = json.dumps(request).encode()
    if kind == 4:
        data = bytearray(text)
        for _ in range(draw.randrange(1, 8)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        text = bytes(data)
    elif kind == 5:
        text = draw.choice([b"", b"[" * 10000, b'{"a":' * 5000, b"\xff\xfe", b'{"prompt":"\\ud800"}', b"null", b"1e999", text[:-3]])
    return text


def head(path="/v1/completions", length=None, *more):
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *more]
    return "\r\n".join(lines + ([] if length is None else [f"Content-Length: {length}"]) + ["", ""]).encode()


def ordinary(draw, connection):
    text = body(draw)
    path = draw.choice(["/v1/completions"] * 8 + ["/tokenize", "/detokenize"])
    connection.sendall(head(path, len(text)) + text)
    read_some(connection)


def cut_off(draw, connection):
    """Disconnects in the middle of a request or of its response."""
    text = json.dumps({**valid(draw), "max_tokens": 50, "stream": draw.random() < 0.5}).encode()
    whole = head(length=len(text)) + text
    connection.sendall(whole[:draw.randrange(1, len(whole) + 1)])
    if draw.random() < 0.5:
        connection.settimeout(0.02)
        read_some(connection)


def not_http(draw, connection):
    connection.sendall(draw.choice([
        draw.randbytes(draw.randrange(1, 500)), b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"\r\n\r\n", b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 9000 + b"\r\n", b"PUT /v1/completions HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nRange: bytes=" + b"0-," * 2600 + b"0-\r\n\r\n", b"GET /%2e%2e/%00 HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"A" * 100000]))
    read_some(connection)


def wrong_length(draw, connection):
    connection.sendall(draw.choice([
        head(length=-1), head(length="9" * 30), head("/v1/completions", 5, "Content-Length: 6") + b"hello", head() + b"{}",
        head(length=10**12),
        head("/v1/completions", None, "Transfer-Encoding: chunked") + b"zz\r\n", head("/v1/completions", None, "Transfer-Encoding: gzip"),
        head("/v1/completions", None, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n" + b"f" * 400,
        head("/v1/completions", 20, "Content-Encoding: gzip") + b"\x1f\x8b" + b"0" * 18,
        head("/v1/completions", 20, "Expect: 100-continue")]))
    read_some(connection)


def endless(draw, connection):
    """Sends an endless body until the server disconnects."""
    connection.sendall(head("/v1/completions", None, "Transfer-Encoding: chunked"))
    chunk = b"10000\r\n" + b"[" * 65536 + b"\r\n"
    for _ in range(400):
        connection.sendall(chunk)
    read_some(connection)


def half_open(draw, connection):
    """Sends a part of a request, then nothing for a while."""
    connection.sendall(head(length=100)[:draw.randrange(0, 90)])
    time.sleep(draw.random())


def slow_reader(draw, connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    text = json.dumps({"prompt": "the head", "max_tokens": 100, "logprobs": 20, "stream": True}).encode()
    connection.sendall(head(length=len(text)) + text)
    for _ in range(5):
        connection.recv(10)
        time.sleep(draw.random() / 10)


KINDS = [ordinary] * 12 + [cut_off] * 4 + [not_http] * 3 + [wrong_length] * 3 + [endless, half_open, slow_reader]


def read_some(connection):
    with contextlib.suppress(TimeoutError):
        while data := connection.recv(65536):
            if b"\r\n\r\n" in data:
                return


def attack(address, seed):
    draw = random.Random(seed)
    kind = draw.choice(KINDS)
    with contextlib.suppress(ConnectionError, TimeoutError), socket.create_connection(address, timeout=10) as connection:
        connection.settimeout(2)
        kind(draw, connection)


def good_client(url):
    """Sends an ordinary request; returns its duration in seconds and the generated text."""
    text = json.dumps({"prompt": "the head ", "max_tokens": 4, "seed": 1, "temperature": 0}).encode()
    begin = time.monotonic()
    request = urllib.request.Request(f"{url}/v1/completions", text, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=train_runs.PATIENCE) as response:
        document = json.load(response)
    return time.monotonic() - begin, document["choices"][0]["text"]


def run(url, host, port, requests, threads=16, first_seed=0, on_progress=lambda done: None):
    """Sends `requests` bad requests; returns the durations and texts of the ordinary client's requests."""
    seeds, lock, times, texts = iter(range(first_seed, first_seed + requests)), threading.Lock(), [], set()

    def bad():
        while True:
            with lock:
                seed = next(seeds, None)
            if seed is None:
                return
            attack((host, port), seed)
            on_progress(seed - first_seed + 1)

    workers = [threading.Thread(target=bad) for _ in range(threads)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        seconds, text = good_client(url)
        times.append(seconds)
        texts.add(text)
        time.sleep(0.05)
    return times, texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--pid", type=int, help="process id of the server, to print its memory")
    options = parser.parse_args()
    host, port = options.url.removeprefix("http://").rsplit(":", 1)

    def memory():
        with open(f"/proc/{options.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

    for part in range(10):
        times, texts = run(options.url, host, int(port), options.requests // 10, first_seed=part * options.requests // 10)
        resident = f", {memory():.1f} MiB resident" if options.pid else ""
        print(f"{(part + 1) * options.requests // 10} bad requests: {len(times)} good ones took {sorted(times)[len(times) // 2]:.3f} s, "
              f"{max(times):.3f} s at most, {len(texts)} different answers{resident}", flush=True)


if __name__ == "__main__":
    main()
