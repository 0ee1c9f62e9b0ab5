"""Tests headroom serve as an HTTP server: errors before a body is read, framing of messages, keys, and addresses."""

import contextlib
import json
import socket

import pytest

import train_runs
from serving import Server, text

HEAD = "the head room attends "


@pytest.mark.parametrize("method, path, body, headers, status", [
    ("GET", "/nothing", None, {}, 404), ("POST", "/nothing", "{}", {"Content-Type": "application/json"}, 404),
    ("GET", "/v1/completions", None, {}, 405), ("POST", "/health", "", {}, 405), ("DELETE", "/v1/models", None, {}, 405),
    ("POST", "/v1/completions", "prompt=a", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ("POST", "/v1/completions", "x", {"Content-Type": "multipart/form-data; boundary=y"}, 415),
    ("POST", "/v1/completions", "{}", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
    ("POST", "/v1/completions", None, {"Content-Type": "application/json", "Content-Length": str(1 << 40)}, 413),
    ("POST", "/v1/completions", None, {"Content-Type": "application/json", "Content-Length": "many"}, 400),
    ("GET", "/v1/models", None, {"Host": "evil.example:8080"}, 403),
    ("POST", "/v1/completions", '{"prompt": "a"}', {"Content-Type": "application/json", "Host": "127.0.0.1.evil.example"}, 403),
    ("GET", "/health", "body", {}, 400), ("GET", "/" + "a" * 9000, None, {}, 414)])
def test_errors_found_before_the_body_is_read(server, method, path, body, headers, status):
    answer = server.call(method, path, body, headers)
    assert answer.status == status and answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("method, path, allowed", [("GET", "/v1/completions", "POST"), ("PUT", "/health", "GET, HEAD"),
                                                   ("HEAD", "/tokenize", "POST")])
def test_a_refused_method_names_the_allowed_ones(server, method, path, allowed):
    answer = server.call(method, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)


def test_head_is_get_without_the_body(server):
    whole, head = server.call("GET", "/v1/models"), server.call("HEAD", "/v1/models")
    assert (head.status, head.text) == (200, "")
    assert int(head.headers["Content-Length"]) == len(whole.text.encode()) > 0


def test_a_body_beyond_the_limit_is_refused(served):
    with Server(served["routed"], "--max-body", 1) as server:
        large = {"prompt": "a" * (1 << 20)}
        assert server.post("/v1/completions", large).status == 413

        def pieces():
            yield b'{"prompt":"'
            for _ in range(24):
                yield b"a" * 65536

        with contextlib.suppress(ConnectionError):  # the server need not read the rest
            assert server.call("POST", "/v1/completions", pieces(), {"Content-Type": "application/json"}).status == 413
        assert text(server.complete(prompt="a"))


def exchange(server, text, shut_down=False):
    """Sends these bytes; returns what the server sends until it closes the connection."""
    with socket.create_connection((server.host, server.port), timeout=train_runs.PATIENCE) as connection:
        connection.sendall(text.encode())
        if shut_down:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


@pytest.mark.parametrize("framing", [
    "Transfer-Encoding : chunked", "Transfer-Encoding: %63hunked", "Content-Length: 1%37", "Content-Length: 0\r\nContent-Length: 44",
    "Transfer-Encoding: chunked\r\nContent-Length: 44", "Content-Length: +0", "Content-Length:"])
def test_an_ambiguous_head_is_refused(server, framing):
    answer = exchange(server, f"GET /health HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n")
    assert answer.startswith("HTTP/1.1 400 ") and '"invalid_request_error"' in answer


COMPLETION = '{"prompt": "a", "model": "routed", "max_tokens": 1}'  # 0x33 bytes


@pytest.mark.parametrize("chunks, status", [
    (f"33\r\n{COMPLETION}\r\n0\r\n\r\n", 200),
    (f"033;name=value\r\n{COMPLETION}\r\n0\r\nX-Checksum: 1\r\n\r\n", 200),
    (f"10\r\n{COMPLETION[:16]}\r\n23\r\n{COMPLETION[16:]}\r\n0\r\n\r\n", 200),
    (f"0x33\r\n{COMPLETION}\r\n0\r\n\r\n", 400), (f" 33\r\n{COMPLETION}\r\n0\r\n\r\n", 400),
    (f"+33\r\n{COMPLETION}\r\n0\r\n\r\n", 400),
    (f"-33\r\n{COMPLETION}\r\n0\r\n\r\n", 400), (f"33\r\n{COMPLETION}xx0\r\n\r\n", 400),
    (f"33\r\n{COMPLETION}\r\n0\r\nno trailer\r\n\r\n", 400), (f"33\n{COMPLETION}\r\n0\r\n\r\n", 400)])
def test_chunks(server, chunks, status):
    answer = exchange(server, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                              f"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")
    assert answer.startswith(f"HTTP/1.1 {status} ")


def test_a_stream_for_an_older_client_ends_with_the_connection(server):
    body = json.dumps({"model": "routed", "prompt": HEAD, "max_tokens": 5, "stream": True})
    answer = exchange(server, "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
                              f"Content-Length: {len(body)}\r\n\r\n{body}")
    head, _, events = answer.partition("\r\n\r\n")
    assert "Transfer-Encoding" not in head and "Connection: close" in head
    assert events.startswith("data: {") and events.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_only_shuts_down_its_sending_side_gets_its_answer(server, stream):
    fields = {"model": "routed", "prompt": HEAD, "max_tokens": 100, "seed": 3, "stream": stream}
    body = json.dumps(fields)
    answer = exchange(server, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: Application/JSON; charset=utf-8\r\n"
                              f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}", shut_down=True)
    if stream:
        assert answer.endswith("data: [DONE]\n\n\r\n0\r\n\r\n")
    else:
        document = json.loads(answer.rpartition("\r\n\r\n")[2])
        assert document["choices"] == server.complete(**fields)["choices"]


def test_only_the_key_grants_access(served, tmp_path):
    key = tmp_path / "key"
    key.write_text("0123456789abcdef-secret\n")
    key.chmod(0o600)
    with Server(served["routed"], "--api-key-file", key) as server:
        for wrong in ({}, {"Authorization": "Bearer 0123456789abcdef-secre"}, {"Authorization": "Bearer "},
                      {"Authorization": "0123456789abcdef-secret"}, {"Authorization": "Bearer 0123456789abcdef-secret2"}):
            for answer in (server.post("/v1/completions", {"prompt": "a"}, wrong), server.get("/v1/models", **wrong),
                           server.get("/metrics", **wrong)):
                assert answer.status == 401 and answer.error["code"] == "invalid_api_key"
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        right = {"Authorization": "bearer 0123456789abcdef-secret"}
        assert server.post("/v1/completions", {"prompt": "a"}, right).status == 200
        assert server.post("/v1/completions", {"prompt": "a"}, {**right, "Host": "behind.a.proxy"}).status == 200
        assert server.get("/health").status == 200
        status, _, err = server.stop()
        assert status == 0 and "secret" not in err and "warning" not in err


def test_an_invalid_key_file(headroom, served, tmp_path):
    (tmp_path / "key").write_text("short\n")
    line = headroom.refusal("serve", served["routed"], "--port", 0, "--api-key-file", tmp_path / "key")
    assert f"--api-key-file: {tmp_path / 'key'}: " in line


def test_missing_authentication_is_warned_about(served, tmp_path):
    with Server(served["routed"], "--host", "0.0.0.0") as server:
        server.host = "127.0.0.1"
        assert server.get("/health").status == 200
        warnings = [line for line in server.lines if "warning" in line]
        assert len(warnings) == 1 and "0.0.0.0" in warnings[0] and "--api-key-file" in warnings[0]
    key = tmp_path / "key"
    key.write_text("0123456789abcdef-secret\n")
    with Server(served["routed"], "--host", "0.0.0.0", "--api-key-file", key) as server:  # the file is readable by others
        assert [("chmod 600" in line) for line in server.lines if "warning" in line] == [True]
