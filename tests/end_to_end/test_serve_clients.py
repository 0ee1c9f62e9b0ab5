"""Real clients of headroom serve: the package openai, and lm_eval's model of a completions server, which must give the
same figures as `headroom evaluate --task`. Tests of a package that is not installed are skipped (pip install openai
'lm_eval[api]'); lm_eval's requests and its use of the answers are also tested without it."""

import json
import math
import random

import pytest

import serving
from serving import Server

CONTEXT = 160
WORDS = ["the", "head", "room", "attends", "to", "every", "token", "twice", "and", "rests", "caf\u00e9", "12"]


@pytest.fixture(scope="module")
def rows():
    draw = random.Random(11)

    def s(low=2, high=6):
        return " ".join(draw.choice(WORDS) for _ in range(draw.randrange(low, high)))

    return {
        "lambada": [{"text": s(4, 10)} for _ in range(12)],
        "blimp": [{"sentence_good": s(3, 9) + ".", "sentence_bad": s(3, 9) + ".", "UID": f"u{i % 2}"} for i in range(10)],
        "piqa": [{"goal": s(14, 18), "sol1": s(), "sol2": s(), "label": draw.randrange(2)} for _ in range(10)]}


# The tasks are defined as in lm_eval's suite, with other data. `evaluate` puts no space in front of BLiMP's sentences.
TASKS = {
    "lambada": 'output_type: loglikelihood\ndoc_to_text: "{{text.split(\' \')[:-1]|join(\' \')}}"\n'
               "doc_to_target: \"{{' '+text.split(' ')[-1]}}\"\n"
               "metric_list:\n  - metric: perplexity\n    aggregation: perplexity\n  - metric: acc\n    aggregation: mean\n",
    "blimp": 'output_type: multiple_choice\ndoc_to_text: ""\ndoc_to_target: 0\n'
             'doc_to_choice: "{{[sentence_good, sentence_bad]}}"\ntarget_delimiter: ""\nmetric_list:\n  - metric: acc\n',
    "piqa": 'output_type: multiple_choice\ndoc_to_text: "Question: {{goal}}\\nAnswer:"\ndoc_to_target: label\n'
            'doc_to_choice: "{{[sol1, sol2]}}"\nmetric_list:\n  - metric: acc\n  - metric: acc_norm\n'}


@pytest.fixture(scope="module", params=["bytes", "pieces"])
def run(request, headroom, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    if request.param == "bytes":
        return serving.train(headroom, folder, "bytes", *serving.ROUTED, context=CONTEXT)
    return serving.train(headroom, folder, "pieces", *serving.PIECES, 'model.attention.position = "relative"', context=CONTEXT)


@pytest.fixture(scope="module")
def expected(headroom, run, rows, tmp_path_factory):
    """Returns how `headroom evaluate` scores every item of every task, with nothing in front of texts, as in lm_eval."""
    folder, items = tmp_path_factory.mktemp("data"), {}
    for task, some in rows.items():
        data = folder / f"{task}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in some))
        out = folder / f"{task}.items"
        document = headroom.json("evaluate", run, "--task", task, "--data", data, "--items", out, "--begin", "none", "--threads", 1)
        items[task] = [json.loads(line)["choices"] for line in out.read_text().splitlines()]
        items[task + " figures"] = document["results"][task]
    return items


@pytest.fixture(scope="module", params=[0, 16384], ids=["no_prefix_cache", "prefix_cache"])
def server(request, run):
    with Server(run, "--prefix-cache", request.param) as running:
        running.prefix_cache = request.param > 0
        yield running


def close(a, b):
    return math.isclose(a, b, rel_tol=0, abs_tol=1e-5)


def test_log_likelihoods_match_evaluate(server, expected):
    """Does what the package's method does: sends all choices of a task in one request."""
    def ids(text):
        return server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"]

    about = server.get("/tokenizer_info").json
    begin = ids(about["bos_token"] or about["eos_token"])
    for task in TASKS:
        choices = [choice for item in expected[task] for choice in item]
        contexts = [ids(choice["context"]) for choice in choices]
        prompts = [ids(choice["context"] + choice["continuation"]) for choice in choices]
        prompts = [prompt if context else begin + prompt for prompt, context in zip(prompts, contexts)]
        document = server.complete(prompt=prompts, temperature=0, max_tokens=1, logprobs=1, seed=1234, echo=True)
        for choice, prompt, context, own in zip(document["choices"], prompts, contexts, choices, strict=True):
            shown = choice["logprobs"]
            assert len(shown["token_logprobs"]) == len(prompt) + 1
            scored = slice(len(context or begin), -1)
            assert close(sum(shown["token_logprobs"][scored]), own["log_probability"]), (task, own)
            greedy = all(one == max(top.values())
                         for one, top in zip(shown["token_logprobs"][scored], shown["top_logprobs"][scored]))
            assert greedy == own["greedy"]
    if server.prefix_cache:
        found = next(value for name, value in server.metrics().items() if name.startswith("headroom_prefix_cache_tokens_total"))
        assert found > 0


@pytest.mark.parametrize("how", ["batch_size=1", "batch_size=8", "num_concurrent=4"])
def test_lm_eval_gives_the_figures_of_evaluate(server, expected, rows, tmp_path, monkeypatch, how):
    pytest.importorskip("lm_eval", reason="lm_eval is not installed (pip install lm_eval[api])")
    pytest.importorskip("tenacity", reason="lm_eval's interface is not installed (pip install lm_eval[api])")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    from lm_eval import evaluator
    from lm_eval.tasks import TaskManager

    for task, some in rows.items():
        (tmp_path / f"{task}.json").write_text("".join(json.dumps(row) + "\n" for row in some))
        (tmp_path / f"{task}.yaml").write_text(
            f"task: own_{task}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {tmp_path / f'{task}.json'}\n"
            f"test_split: test\n{TASKS[task]}")
    (model,) = [one["id"] for one in server.get("/v1/models").json["data"]]
    done = evaluator.simple_evaluate(
        model="local-completions",
        model_args=f"model={model},base_url={server.url}/v1/completions,max_length={CONTEXT + 1},{how}",
        tasks=[f"own_{task}" for task in TASKS], bootstrap_iters=0, log_samples=True,
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False))
    for task in TASKS:
        scored = {(one["context"], one["continuation"]): one for item in expected[task] for one in item}
        samples = done["samples"][f"own_{task}"]
        assert len(samples) == len(rows[task])
        for sample in samples:
            for texts, ((log_probability, greedy),) in zip(sample["arguments"], sample["resps"], strict=True):
                own = scored[tuple(texts)]
                assert close(log_probability, own["log_probability"]), (task, own)
                assert greedy == own["greedy"]
        for name, figure in expected[task + " figures"].items():
            if isinstance(figure, float) and "stderr" not in name and name in done["results"][f"own_{task}"]:
                assert math.isclose(figure, done["results"][f"own_{task}"][name], rel_tol=1e-4), (task, name)


def test_lm_eval_writes_text(server, tmp_path, monkeypatch):
    pytest.importorskip("lm_eval", reason="lm_eval is not installed (pip install lm_eval[api])")
    pytest.importorskip("tenacity", reason="lm_eval's interface is not installed (pip install lm_eval[api])")
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    lm = LocalCompletionsAPI(model=server.get("/v1/models").json["data"][0]["id"], base_url=f"{server.url}/v1/completions",
                             max_length=CONTEXT + 1)
    assert lm.eot_token_id == server.post("/tokenize", {"prompt": lm.tokenizer.eos_token}).json["tokens"][0]
    requests = [Instance("generate_until", {}, ("the head room", {"until": ["t"], "max_gen_toks": 20}), i) for i in range(2)]
    for text in lm.generate_until(requests, disable_tqdm=True):
        assert text == server.complete(prompt="the head room", max_tokens=20, temperature=0, stop=["t"])["choices"][0]["text"]


def test_openai_completes_and_streams(server):
    openai = pytest.importorskip("openai", reason="openai is not installed (pip install openai)")
    (model,) = [one["id"] for one in server.get("/v1/models").json["data"]]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        assert [one.id for one in client.models.list()] == [model]
        asked = {"model": model, "prompt": "the head room", "max_tokens": 12, "seed": 4, "logprobs": 2, "echo": True}
        whole = client.completions.create(**asked)
        assert whole.usage.completion_tokens == 12 and whole.choices[0].finish_reason == "length"
        shown = whole.choices[0].logprobs
        assert len(shown.tokens) == len(shown.token_logprobs) == len(shown.top_logprobs) == whole.usage.total_tokens
        own = server.complete(**asked)["choices"][0]
        assert (whole.choices[0].text, shown.model_dump()) == (own["text"], own["logprobs"])
        pieces = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == whole.choices[0].text
        assert pieces[-1].usage == whole.usage
        with pytest.raises(openai.NotFoundError) as raised:
            client.completions.create(model="another", prompt="a")
        assert raised.value.code == "model_not_found" and raised.value.param == "model"
        with pytest.raises(openai.BadRequestError) as raised:
            client.completions.create(model=model, prompt="a", suffix="b")
        assert raised.value.param == "suffix"
