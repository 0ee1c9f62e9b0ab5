"""Tests headroom serve under load: limits, clients that disconnect or misbehave, graceful stop."""

import concurrent.futures
import contextlib
import json
import os
import re
import signal
import socket
import subprocess

import pytest

import bad_clients
import train_runs
from serving import Server, text
from train_runs import wait_until


def running(server):
    return sum(number for name, number in server.metrics().items() if name.startswith("headroom_requests_running"))


@pytest.fixture(scope="module")
def narrow(served):
    """Starts a server that runs one request at a time and queues one more; very long responses are allowed."""
    with Server(served["routed"], "--batch", 1, "--queue", 1, "--max-length", 1 << 20) as server:
        yield server


def begin(server, **fields):
    """Opens a connection and reads the beginning of the response."""
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "the", "stream": True, **fields}),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200
    response.readline()
    return connection, response


@pytest.mark.parametrize("streamed", [True, False])
def test_a_disconnected_client_frees_its_slot(narrow, streamed):
    gone = narrow.metrics()["headroom_requests_abandoned_total"]
    if streamed:
        connection, response = begin(narrow, max_tokens=1000000)
        response.close()
    else:
        connection = narrow.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "the", "max_tokens": 1000000}),
                           {"Content-Type": "application/json"})
        wait_until(lambda: running(narrow) == 1)
    connection.close()
    assert text(narrow.complete(prompt="the", max_tokens=3))
    wait_until(lambda: running(narrow) == 0)
    assert narrow.metrics()["headroom_requests_abandoned_total"] == gone + 1


def test_a_full_queue(narrow):
    connection, response = begin(narrow, max_tokens=1000000)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(narrow.complete, prompt="the", max_tokens=3)
        wait_until(lambda: narrow.metrics()['headroom_requests_waiting{model="routed"}'] == 1)
        answer = narrow.post("/v1/completions", {"prompt": "the"})
        assert answer.status == 429 and answer.error["code"] == "queue_full" and answer.headers["Retry-After"] == "1"
        response.close()
        connection.close()
        assert text(waiting.result())
    assert narrow.post("/v1/completions", {"prompt": ["a"] * 3}).error.items() >= {"code": "too_many_answers", "param": "prompt"}.items()


def test_an_answer_that_takes_too_long(served):
    with Server(served["routed"], "--timeout", 5, "--max-length", 1 << 20) as server:
        answer = server.post("/v1/completions", {"prompt": "the", "max_tokens": 1000000})
        assert answer.status == 504 and answer.error["code"] == "timeout"
        events = list(server.events(prompt="the", max_tokens=1000000))
        assert events[0]["choices"] and events[-1]["error"]["code"] == "timeout"
        wait_until(lambda: running(server) == 0)


def test_an_inspection_that_takes_too_long(served):
    with Server(served["routed"], "--timeout", 0.001) as server:
        answer = server.post("/inspect", {"text": "the head room attends"})
        assert answer.status == 504 and answer.error["code"] == "timeout"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_finishes_its_answers(served, how):
    with Server(served["routed"], "--max-length", 1 << 20) as server:
        connection, response = begin(server, max_tokens=10000, seed=1)
        idle = server.connect()
        idle.request("GET", "/health")
        assert Server and idle.getresponse().read()
        server.process.send_signal(how)
        wait_until(lambda: server.get("/health").status == 503)
        for path, fields in [("/v1/completions", {"prompt": "a"}), ("/inspect", {"text": "a"})]:
            refused = server.post(path, fields)
            assert refused.status == 503 and refused.error["code"] == "shutting_down"
        lines = [line for line in response.read().splitlines() if line]
        assert lines[-1] == b"data: [DONE]" and b'"finish_reason":"length"' in lines[-2]
        status, out, err = server.wait()
        assert (status, out) == (0, "") and "warning" not in err
        connection.close()
        idle.close()


def test_more_connections_than_the_server_has_threads_for(server):
    """The server closes half-open connections to accept complete requests."""
    with contextlib.ExitStack() as held:
        for _ in range(300):
            held.enter_context(socket.create_connection((server.host, server.port))).sendall(b"POST /v1/comp")
        for _ in range(3):
            assert text(server.complete(model="routed", prompt="a", max_tokens=2))


def test_bad_clients_do_not_stop_a_good_one(served):
    with Server(served["routed"], "--max-body", 1) as server:
        times, texts = bad_clients.run(server.url, server.host, server.port, 150)
        assert times and len(texts) == 1
        wait_until(lambda: running(server) == 0)
        status, _, err = server.stop()
        assert status == 0 and "warning" not in err


def test_metrics_are_as_prometheus_reads_them(served):
    expected = {'headroom_generated_tokens_total{model="routed"}': 8,
                'headroom_prompt_tokens_total{model="routed"}': 6,
                'headroom_http_requests_total{route="/v1/completions",status="200"}': 1,
                "headroom_completion_seconds_count": 1,
                "headroom_time_to_first_token_seconds_count": 1,
                'headroom_time_to_first_token_seconds_bucket{le="+Inf"}': 1}
    with Server(served["routed"]) as server:
        server.complete(prompt="abc", max_tokens=4, n=2)
        wait_until(lambda: expected.items() <= server.metrics().items())  # some are counted after the answer is sent
        page = server.get("/metrics")
    assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    for line in page.text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) headroom_\w+ .+|headroom_\w+(\{\w+=\"[^\"]*\"(,\w+=\"[^\"]*\")*\})? [-+.\w]+", line), line


def test_a_shared_prompt_prefix_is_read_once(server):
    def found():
        return server.metrics()['headroom_prefix_cache_tokens_total{model="routed"}']

    shared = "every token rests twice and attends to every head in the room "
    first = server.complete(model="routed", prompt=shared + "the", max_tokens=4, seed=1, logprobs=1)
    before = found()
    second = server.complete(model="routed", prompt=shared + "the", max_tokens=4, seed=1, logprobs=1)
    assert first["choices"] == second["choices"]
    assert found() - before > len(shared) // 2


def test_standard_error_may_be_full(served):
    with open("/dev/full", "w") as full:
        process = subprocess.Popen([train_runs.program(), "serve", str(served["routed"]), "--port", "0", "--json", "--threads", "1"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=full, text=True)
        url = json.loads(process.stdout.readline())["url"]
        assert url.startswith("http://127.0.0.1:")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(train_runs.PATIENCE) == 0
        process.stdout.close()
