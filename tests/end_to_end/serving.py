"""Starts `headroom serve` and sends it requests."""

import contextlib
import http.client
import json
import re
import signal
import subprocess

import train_runs

ROUTED = ('model.attention.projection = "experts"', "model.attention.n_experts = 3", "model.attention.top_k = 2",
          'model.attention.position = "rope"')
PIECES = ('tokenizer.kind = "sentencepiece"', "tokenizer.vocabulary_size = 300")


def train(headroom, folder, name, *lines, context=160):
    """Trains a model; returns its run folder."""
    if not (folder / "text.txt").exists():
        train_runs.write_text(folder / "text.txt", 20000, 3)
    config = train_runs.small_config(folder / f"{name}.toml", folder / "text.txt", f"model.context_length = {context}",
                                     "train.steps = 40", "train.learning_rate = 1e-2", *lines)
    headroom("train", config, "--out", folder / name, "--quiet")
    return folder / name


def text(document):
    """Returns the text of a response with one choice."""
    return document["choices"][0]["text"]


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.text = response.status, dict(response.getheaders()), response.read().decode()

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def error(self):
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"], error
        return error


class Server:
    """A server on a free port. `lines` has what it printed on stderr until it was ready."""

    def __init__(self, *arguments, environment=None):
        self.process = subprocess.Popen(
            [train_runs.program(), "serve", *map(str, arguments), "--port", "0", "--threads", "1"], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if ready := re.fullmatch(r"listening on (http://(.*):(\d+))\n", line):
                self.url, self.host, self.port = ready[1], ready[2].strip("[]"), int(ready[3])
                return
        raise AssertionError(f"the server did not start: {self.lines}")

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=train_runs.PATIENCE)

    def call(self, method, path, body=None, headers=None):
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())

    def get(self, path, **headers):
        return self.call("GET", path, headers=headers)

    def post(self, path, fields, headers=None):
        body = fields if isinstance(fields, (bytes, str)) else json.dumps(fields)
        return self.call("POST", path, body, {"Content-Type": "application/json", **(headers or {})})

    def complete(self, **fields):
        """Returns the JSON of a completion; checks that it succeeds."""
        answer = self.post("/v1/completions", fields)
        assert answer.status == 200, answer.text
        return answer.json

    def events(self, **fields):
        """Returns the JSON events of a streamed completion."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", "/v1/completions", json.dumps({**fields, "stream": True}),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.getheader("Content-Type") == "text/event-stream"
            for line in response:
                if line == b"data: [DONE]\n":
                    assert response.read() == b"\n"
                    return
                if line != b"\n":
                    assert line.startswith(b"data: "), line
                    yield json.loads(line[6:])
            raise AssertionError("the stream ended without its last event")

    def metrics(self):
        """Returns the values of all metrics, by name or name{labels}."""
        lines = self.get("/metrics").text.splitlines()
        return {name: float(number) for name, number in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def stop(self):
        """Stops the server; returns its exit status, stdout and the rest of stderr."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self):
        out, err = self.process.communicate(timeout=train_runs.PATIENCE)
        return self.process.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
