"""Tests headroom serve: its responses, the fields that it refuses, and the models that it serves."""

import concurrent.futures
import itertools
import json

import pytest

import train_runs
from serving import Server, text

HEAD = "the head room attends "


# ---- responses


def test_models_and_health(server, served):
    listed = server.get("/v1/models").json
    assert listed["object"] == "list" and [model["id"] for model in listed["data"]] == ["routed", "pieces"]
    assert all(model["object"] == "model" and model["context_length"] == 160 and model["step"] == 40 for model in listed["data"])
    assert server.get("/v1/models/pieces").json == listed["data"][1]
    assert server.get("/v1/models/none").error["code"] == "model_not_found"
    assert all("/" not in str(value) for model in listed["data"] for value in model.values()), "no paths of this machine"
    assert server.get("/health").json == {"status": "ok"}
    assert server.lines[-1].startswith("listening on http://127.0.0.1:")
    page = server.get("/")
    assert page.status == 200 and page.text == server.get("/inspect").text


@pytest.mark.parametrize("name", ["routed", "pieces"])
@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 7},
                                     {"temperature": 1.3, "seed": 5, "top_k": 9, "top_p": 0.8}])
def test_the_answer_is_what_generate_writes(headroom, server, served, name, options):
    words = itertools.chain(*((f"--{key.replace('_', '-')}", value) for key, value in options.items()))
    own = headroom.json("generate", served[name], "--prompt", HEAD, "--tokens", 24, "--threads", 1, *words)
    document = server.complete(model=name, prompt=HEAD, max_tokens=24, **options)
    assert document["object"] == "text_completion" and document["model"] == name
    assert text(document) == own["text"] and document["choices"][0]["finish_reason"] == "length"
    assert document["usage"]["completion_tokens"] == 24
    assert document["usage"]["total_tokens"] == document["usage"]["prompt_tokens"] + 24


@pytest.mark.parametrize("name", ["routed", "pieces"])
def test_a_stream_is_the_answer_in_chunks(server, name):
    asked = {"model": name, "prompt": [HEAD, "every token"], "max_tokens": 20, "seed": 3, "n": 2, "echo": True, "logprobs": 2}
    whole = server.complete(**asked)
    texts, details, ends, usage = [""] * 4, [None] * 4, {}, None
    for event in server.events(**asked, stream_options={"include_usage": True}):
        if not event["choices"]:
            usage = event["usage"]
            continue
        (choice,) = event["choices"]
        i = choice["index"]
        assert i not in ends
        texts[i] += choice["text"]
        details[i] = ({key: details[i][key] + choice["logprobs"][key] for key in details[i]} if details[i]
                      else choice["logprobs"])
        if choice["finish_reason"]:
            ends[i] = choice["finish_reason"]
    assert usage == whole["usage"]
    for choice in whole["choices"]:
        i = choice["index"]
        assert (texts[i], details[i], ends[i]) == (choice["text"], choice["logprobs"], choice["finish_reason"])


def test_answers_come_in_the_order_of_the_prompts_and_their_seeds(server):
    """Choice i for a prompt equals the response to the prompt alone with seed + i."""
    document = server.complete(model="routed", prompt=["the", "room"], n=3, seed=40, max_tokens=10)
    assert [choice["index"] for choice in document["choices"]] == list(range(6))
    for i, choice in enumerate(document["choices"]):
        alone = server.complete(model="routed", prompt=["the", "room"][i // 3], seed=40 + i % 3, max_tokens=10)
        assert choice["text"] == text(alone)


def test_prompts_as_token_ids(server):
    ids = server.post("/tokenize", {"model": "pieces", "prompt": HEAD}).json["tokens"]
    asked = {"model": "pieces", "max_tokens": 8, "temperature": 0}
    by_text = text(server.complete(prompt=HEAD, **asked))
    assert text(server.complete(prompt=ids, **asked)) == by_text
    many = server.complete(prompt=[ids, ids[:2]], **asked)["choices"]
    assert many[0]["text"] == by_text and len(many) == 2


def test_an_empty_prompt_begins_a_text(headroom, server, served):
    own = headroom.json("generate", served["pieces"], "--prompt", "", "--tokens", 6, "--temperature", 0, "--threads", 1)
    assert text(server.complete(model="pieces", prompt="", max_tokens=6, temperature=0)) == own["text"]


def test_equal_prompts_have_different_answers_without_a_seed(server):
    prompts = {"model": "routed", "prompt": [HEAD, HEAD], "n": 2, "max_tokens": 20, "temperature": 1.5}

    def texts(**more):
        return [choice["text"] for choice in server.complete(**prompts, **more)["choices"]]

    assert len(set(texts())) == 4
    first, second, *others = texts(seed=3)
    assert first != second and others == [first, second]


@pytest.mark.parametrize("name", ["routed", "pieces"])
def test_stop_strings_end_the_text_wherever_tokens_are_cut(server, name):
    asked = {"model": name, "prompt": HEAD, "max_tokens": 60, "seed": 11}
    whole = text(server.complete(**asked))
    for stop in [whole[9:14], whole[20:21], [whole[30:36], "never"], [whole[25:40], whole[27:29]]]:
        stops = [stop] if isinstance(stop, str) else stop
        # The first stop string that is complete ends the text where it begins.
        end = min((whole.find(one) + len(one), whole.find(one)) for one in stops if one in whole)[1]
        document = server.complete(**asked, stop=stop, logprobs=0)
        assert text(document) == whole[:end] and document["choices"][0]["finish_reason"] == "stop"
        assert "".join(event["choices"][0]["text"] for event in server.events(**asked, stop=stop)) == whole[:end]
        assert all(offset < max(end, 1) for offset in document["choices"][0]["logprobs"]["text_offset"])
    assert text(server.complete(**asked, stop="never there")) == whole


def test_echo_and_log_probabilities(server):
    document = server.complete(model="routed", prompt=HEAD, max_tokens=12, seed=2, echo=True, logprobs=3)
    choice, shown = document["choices"][0], document["choices"][0]["logprobs"]
    assert choice["text"].startswith(HEAD) and len(choice["text"]) == len(HEAD) + 12
    assert "".join(shown["tokens"]) == choice["text"] and shown["text_offset"] == list(range(len(choice["text"])))
    assert shown["token_logprobs"][0] is None and shown["top_logprobs"][0] is None
    for token, own, top in list(zip(shown["tokens"], shown["token_logprobs"], shown["top_logprobs"]))[1:]:
        assert top[token] == own <= 0 and 3 <= len(top) <= 4
        assert own <= max(top.values()) and sorted(top.values(), reverse=True)[:3] == list(top.values())[:3]
    # The prompt alone has the same log-probabilities.
    alone = server.complete(model="routed", prompt=HEAD, max_tokens=0, echo=True, logprobs=3)["choices"][0]
    assert alone["text"] == HEAD and alone["finish_reason"] == "length"
    for key, values in alone["logprobs"].items():
        assert values == shown[key][:len(HEAD)]
    assert text(server.complete(model="routed", prompt=HEAD, max_tokens=0, echo=True)) == HEAD


def test_tokens_that_are_no_text_are_written_unambiguously(server):
    euro = "\u20ac".encode()
    for name, ids in (("routed", list(euro)), ("pieces", server.post("/tokenize", {"model": "pieces", "prompt": "a\u20ac"})
                                                .json["tokens"][-3:])):
        shown = server.complete(model=name, prompt=[5, *ids], max_tokens=1, echo=True, logprobs=1)["choices"][0]["logprobs"]
        assert shown["tokens"][1:4] == [f"bytes:\\x{byte:02x}" for byte in euro]


def test_routing_names_the_experts_of_each_token(server):
    choice = server.complete(model="routed", prompt="room", max_tokens=5, seed=1, echo=True, routing=True)["choices"][0]
    assert len(choice["routing"]) == 4 + 5
    for token in choice["routing"]:
        assert list(token) == [f"layer{i}.attention.select_{side}" for i in (0, 1) for side in ("in", "out")]
        for heads in token.values():
            assert len(heads) == 2 and all(len(set(experts)) == 2 and set(experts) <= {0, 1, 2} for experts in heads)
    assert server.post("/v1/completions", {"model": "pieces", "prompt": "room", "routing": True}).error["param"] == "routing"


def test_a_result_does_not_depend_on_other_requests(server):
    asked = [{"model": "routed", "prompt": HEAD[:3 + 2 * i] * (1 + 2 * (i % 2)), "max_tokens": 20 + 3 * i, "seed": i,
              "logprobs": 1} for i in range(8)]

    def answer(request):
        return server.complete(**request)["choices"]

    alone = [answer(request) for request in asked]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(answer, asked)) == alone


# ---- tokenizer routes


@pytest.mark.parametrize("name", ["routed", "pieces"])
def test_tokenizer_routes(server, name):
    for prompt in (HEAD.strip(), "caf\u00e9 \U0001f600\nline", ""):  # SentencePiece drops spaces at the ends
        tokens = server.post("/tokenize", {"model": name, "prompt": prompt, "add_special_tokens": False}).json
        assert tokens["count"] == len(tokens["tokens"])
        assert server.post("/detokenize", {"model": name, "tokens": tokens["tokens"]}).json == {"prompt": prompt}
    about = server.get(f"/tokenizer_info?model={name}").json
    end = about["eos_token"]
    assert end == {"routed": "\0", "pieces": "</s>"}[name] and about["chat_template"] is None
    (id,) = server.post("/tokenize", {"model": name, "prompt": end}).json["tokens"]
    assert id == {"routed": 0, "pieces": 2}[name]
    # Within a longer text, the end token's text is ordinary text.
    assert len(server.post("/tokenize", {"model": "pieces", "prompt": f"a{about['eos_token']}"}).json["tokens"]) > 1


def test_different_tokenizers_must_be_named(server):
    assert server.post("/tokenize", {"prompt": "a"}).error["param"] == "model"


def test_the_tokenizer_of_the_first_model_is_shown_unless_another_is_named(server):
    first = server.get("/tokenizer_info").json
    assert first == server.get("/tokenizer_info?model=routed").json != server.get("/tokenizer_info?model=pieces").json
    assert server.get("/tokenizer_info?model=none").error["param"] == "model"


# ---- refused requests


@pytest.mark.parametrize("fields, param, values", [
    ({}, "prompt", ""), ({"prompt": 3}, "prompt", "3"), ({"prompt": []}, "prompt", "empty list"),
    ({"prompt": [1, "a"]}, "prompt", '"a"'), ({"prompt": ["a", 1]}, "prompt[1]", "1"),
    ({"prompt": [[1], []]}, "prompt[1]", ""), ({"prompt": [1.5]}, "prompt", "1.5"),
    ({"prompt": [256]}, "prompt", "256"), ({"prompt": [-1]}, "prompt", "-1"), ({"prompt": [2**40]}, "prompt", str(2**40)),
    ({"max_tokens": 1.5}, "max_tokens", "1.5"), ({"max_tokens": "8"}, "max_tokens", '"8"'),
    ({"max_tokens": -1}, "max_tokens", "-1"), ({"max_tokens": 10**30}, "max_tokens", ""),
    ({"max_tokens": 0}, "max_tokens", "echo"), ({"max_tokens": 200}, "prompt", "161"),
    ({"temperature": 2.5}, "temperature", "2.5"), ({"temperature": "hot"}, "temperature", "hot"),
    ({"top_p": 0}, "top_p", "0"), ({"top_p": 1.01}, "top_p", "1.01"), ({"top_k": -2}, "top_k", "-2"),
    ({"seed": 0.5}, "seed", "0.5"), ({"n": 0}, "n", "0"), ({"n": 129}, "n", "128"),
    ({"stop": 3}, "stop", "3"), ({"stop": [""]}, "stop", "256"), ({"stop": ["a"] * 17}, "stop", "16"),
    ({"stop": "a" * 257}, "stop", "256"), ({"echo": 1}, "echo", "1"), ({"logprobs": True}, "logprobs", "true"),
    ({"logprobs": 21}, "logprobs", "20"), ({"stream": "yes"}, "stream", "yes"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "stream"),
    ({"stream": True, "stream_options": {"more": 1}}, "stream_options.more", ""),
    ({"presence_penalty": 0.5}, "presence_penalty", "0.5"), ({"frequency_penalty": 1}, "frequency_penalty", "1"),
    ({"best_of": 3}, "best_of", "3"), ({"logit_bias": {"5": 1}}, "logit_bias", ""),
    ({"suffix": "end"}, "suffix", ""), ({"user": 5}, "user", "5"),
    ({"max_token": 5}, "max_token", "max_tokens"), ({"model": 5}, "model", "5"),
    ({"messages": []}, "messages", "")])
def test_a_wrong_field_is_refused_by_name(server, fields, param, values):
    request = {"model": "routed", **({} if "prompt" in fields or not fields else {"prompt": "a"}), **fields}
    answer = server.post("/v1/completions", request)
    assert answer.status == 400
    assert answer.error["param"] == param and values in answer.error["message"], answer.error
    assert answer.error["type"] == "invalid_request_error" and answer.error["message"].startswith(param)


def test_neutral_values_are_accepted(server):
    neutral = {"presence_penalty": 0, "frequency_penalty": 0.0, "best_of": 1, "logit_bias": {}, "suffix": None, "user": "me",
               "stop": None, "logprobs": None, "seed": None, "stream_options": None, "top_k": -1, "min_p": 0, "typical_p": 1.0,
               "repetition_penalty": 1.0, "ignore_eos": False, "stop_token_ids": [], "use_beam_search": False, "metadata": {},
               "store": False, "response_format": {"type": "text"}, "skip_special_tokens": True, "guided_json": None}
    assert text(server.complete(model="routed", prompt="a", **neutral))


@pytest.mark.parametrize("model, status", [("another", 404), (None, 400)])
def test_a_model_that_is_not_served(server, model, status):
    answer = server.post("/v1/completions", {"prompt": "a", "model": model})
    assert answer.status == status and answer.error["param"] == "model" and "routed, pieces" in answer.error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"prompt":"a","prompt":"b"}', b'{"prompt":"\xff"}', b"[" * 99,
                                  b'{"temperature":1e999}'])
def test_a_body_that_is_not_a_json_object(server, body):
    answer = server.post("/v1/completions", body)
    assert answer.status == 400 and answer.error["message"].startswith("body: ")


def test_chat_is_refused_with_what_to_use(server):
    answer = server.post("/v1/chat/completions", {"messages": []})
    assert answer.status == 404 and "/v1/completions" in answer.error["message"]


# ---- options, names, models


def test_wrong_options(headroom, server, served, tmp_path):
    run = served["routed"]
    line = headroom.refusal("serve", run, "--port", server.port)
    assert "--port" in line and str(server.port) in line
    assert "--host" in headroom.refusal("serve", run, "--host", "no.such.host.invalid", "--port", 0)
    assert "--port" in headroom.refusal("serve", run, "--port", 65536)
    assert str(run) in headroom.refusal("serve", run, run)
    assert "no_such_run" in headroom.refusal("serve", "no_such_run")
    assert "RUN" in headroom.refusal("serve")


def test_runs_of_one_name_are_told_apart_by_their_folders(headroom, served, tmp_path):
    copy = tmp_path / "routed"
    copy.symlink_to(served["routed"])
    with Server(served["routed"], copy, "--json") as server:
        names = [model["id"] for model in server.get("/v1/models").json["data"]]
        assert names == [f"{served['routed'].parent.name}/routed", f"{tmp_path.name}/routed"]
        assert server.get(f"/v1/models/{names[1]}").json["id"] == names[1]
        assert text(server.complete(model=names[1], prompt="a"))
        # The models share a tokenizer, so the request need not name one.
        assert server.post("/tokenize", {"prompt": "a"}).json["tokens"] == [97]
        status, out, _ = server.stop()
        assert status == 0 and json.loads(out) == {"url": server.url, "models": names}


def test_other_kinds_of_model_are_refused(headroom, tmp_path):
    folder = tmp_path
    train_runs.write_text(folder / "text.txt", 3000, 3)
    train_runs.small_config(folder / "masked.toml", folder / "text.txt", 'model.kind = "masked_language_model"', "train.steps = 2")
    headroom("train", folder / "masked.toml", "--out", folder / "masked", "--quiet")
    assert "language_model" in headroom.refusal("serve", folder / "masked", "--port", 0)


def test_a_run_that_is_being_trained(headroom, tmp_path):
    config = train_runs.prepare(tmp_path)
    training = train_runs.start(config, tmp_path / "run", "--set", "train.steps=100000", "--quiet")
    try:
        train_runs.wait_until(lambda: list((tmp_path / "run").glob("checkpoints/step_*.safetensors")))
        with Server(tmp_path / "run") as server:
            assert server.get("/v1/models").json["data"][0]["step"] >= 1
            assert text(server.complete(prompt="the", max_tokens=5))
        assert training.poll() is None
    finally:
        training.kill()
        training.communicate()


def test_an_imported_model_begins_and_ends_texts_as_it_was_trained_to(headroom, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    from random_transformers import bpe, random_model

    made, end = bpe("gpt_neox"), "<|endoftext|>"
    random_model("gpt_neox", made.get_vocab_size(), 160).save_pretrained(tmp_path / "theirs")
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{end} $A", pair=f"{end} $A $B", special_tokens=[(end, made.token_to_id(end))])
    made.save(str(tmp_path / "theirs" / "tokenizer.json"))
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": end, "eos_token": end}))
    headroom("import", tmp_path / "theirs", "--out", tmp_path / "imported.safetensors")
    with Server(tmp_path / "imported.safetensors") as server:
        begun, plain = (server.post("/tokenize", {"prompt": HEAD, "add_special_tokens": special}).json["tokens"]
                        for special in (True, False))
        assert begun == made.encode(HEAD).ids == [made.token_to_id(end), *plain]
        assert server.complete(prompt=HEAD, max_tokens=1)["usage"]["prompt_tokens"] == len(begun)
        asked = {"max_tokens": 100, "seed": 1, "n": 16, "temperature": 2.0}
        by_text, by_ids = server.complete(prompt=HEAD, **asked), server.complete(prompt=begun, **asked)
        assert by_text["choices"] == by_ids["choices"]
        assert {choice["finish_reason"] for choice in by_text["choices"]} == {"stop", "length"}
        assert all(end not in choice["text"] for choice in by_text["choices"])
        assert by_text["usage"]["completion_tokens"] < 1600
    for number, choice in enumerate(by_text["choices"]):
        words = ["generate", tmp_path / "imported.safetensors", "--prompt", HEAD, "--tokens", 100, "--temperature", 2.0, "--seed"]
        written = headroom.json(*words, 1 + number)
        assert written["text"] == choice["text"]
        assert (written["tokens"] < 100) == (choice["finish_reason"] == "stop")
    page = headroom.json("inspect", tmp_path / "imported.safetensors", "--text", HEAD, "--out", tmp_path / "page.html")
    assert page["tokens"] == len(begun)
