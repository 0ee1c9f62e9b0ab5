"""Opens the page of headroom inspect in a browser and compares its figures with the output of `analyse`."""

import json
import os
import shutil
import time

import browser
import pytest
import train_runs
from serving import Server
from train_runs import tensor

TEXT = "the head attends"  # 16 bytes: the tiny model's context
LAYERS, HEADS = 2, 2

in_browser = pytest.mark.skipif(browser.program() is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(TEXT)
    return file


@pytest.fixture(scope="module")
def page(headroom, trained, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "page.html"
    document = headroom.json("inspect", trained, "--text", text, "--out", out)
    assert document["page"] == str(out) and document["bytes"] == out.stat().st_size and document["tokens"] == len(TEXT)
    return out


@pytest.fixture(scope="module")
def composed(headroom, tiny, tmp_path_factory):
    """Returns a run with composed heads and all of its checkpoints."""
    out = tmp_path_factory.mktemp("composed") / "composed"
    settings = ("model.attention.projection=dense", "model.attention.composition=dynamic", "model.attention.position=rope",
                "model.memory_length=0", "train.steps=3")
    headroom("train", tiny, "--out", out, "--quiet", *(word for one in settings for word in ("--set", one)))
    return out


def shown(window, element):
    return window.evaluate(f"document.querySelector({json.dumps(element)}).textContent")


def centre_of(window, i, j):
    """Returns the centre of the cell of query i and key j in the first map."""
    return window.evaluate(f"""(() => {{
        const panel = inspector.panels[0], m = panel.m;
        panel.map.scrollIntoView({{block: 'center'}});
        const box = panel.map.getBoundingClientRect();
        return [box.left + m.left + ({j} - inspector.state.x + 0.5) * m.cell, box.top + m.top + ({i} - inspector.state.y + 0.5) * m.cell];
    }})()""")


@pytest.fixture(scope="module")
def window(page):
    with browser.Browser() as one:
        one.open(page.as_uri())
        one.evaluate("inspector.drawn()")
        yield one
        assert one.errors == []


@in_browser
def test_maps_match_analyse(headroom, trained, text, window, tmp_path):
    headroom("analyse", trained, "--data", text, "--what", "maps", "--out", tmp_path)
    for layer in range(LAYERS):
        shape, weights = tensor(tmp_path / "analysis.safetensors", f"maps.layer{layer}.attention")
        assert shape == [HEADS, len(TEXT), len(TEXT)]
        for head in range(HEADS):
            values = window.evaluate(f"""inspector.views[0].map({layer}, {head}).then(map => {{
                const all = [];
                for (let i = 0; i < {len(TEXT)}; ++i) for (let j = 0; j < {len(TEXT)}; ++j) all.push(map.value(i, j));
                return all;
            }})""")
            own = weights[head * len(TEXT)**2:(head + 1) * len(TEXT)**2]
            assert max(abs(a - b) for a, b in zip(values, own)) < 2e-4 and max(own) > 0.05


@in_browser
def test_pointer_and_click(headroom, trained, text, window, tmp_path):
    headroom("analyse", trained, "--data", text, "--what", "maps", "--out", tmp_path)
    _, weights = tensor(tmp_path / "analysis.safetensors", "maps.layer1.attention")
    window.evaluate("inspector.change({l: 1, h: 1, x: 0, y: 0, z: 16, s: -1})")
    window.move(*centre_of(window, 11, 4))
    expected = weights[len(TEXT)**2 + 11 * len(TEXT) + 4]
    assert f"query 11 {TEXT[11]}, source 4 h: {expected:.4f}" in shown(window, ".readout")
    window.move(*centre_of(window, 4, 11))
    assert "does not see" in shown(window, ".readout")
    window.click(*centre_of(window, 12, 5))
    window.evaluate("inspector.drawn()")
    assert window.evaluate("[inspector.state.t, inspector.state.s]") == [12, 5]
    assert window.evaluate("document.querySelectorAll('#strip .query, #strip .source').length") == 2


@in_browser
def test_contributions_add_up(window):
    window.evaluate("scrollTo(0, 0)")
    box = window.evaluate("(() => { const box = document.querySelector('#strip [data-i=\"9\"]').getBoundingClientRect();"
                          " return [box.x + box.width / 2, box.y + box.height / 2]; })()")
    window.click(*box)
    window.evaluate("inspector.drawn()")
    assert window.evaluate("inspector.state.t") == 9
    assert float(shown(window, ".sources .residual")) < 1e-4
    assert shown(window, ".sources tr.sum").replace(" ", "") == "sum+100.0%"
    sizes = window.evaluate("[...document.querySelectorAll('.sources tr.entry')].map(row => parseFloat(row.children[4].textContent.replace('−', '-')))")
    assert len(sizes) > 10 and sizes == sorted(sizes, key=abs, reverse=True)
    for layer in range(LAYERS):
        worst = window.evaluate(f"""inspector.views[0].contributions({layer}).then(all => {{
            let worst = 0;
            for (let t = 0; t < {len(TEXT)}; ++t) {{
                let sum = all.others[t] + all.bias[t];
                for (let k = 0; k < all.n; ++k) sum += all.size[t * all.n + k];
                worst = Math.max(worst, Math.abs(sum - 1), all.residual[t]);
            }}
            return worst;
        }})""")
        assert worst < 1e-2
    # The map then shows the entry's head and source.
    window.evaluate("document.querySelector('.sources tr.entry').click()")
    window.evaluate("inspector.drawn()")
    assert window.evaluate("[inspector.state.s, inspector.state.h]") == window.evaluate(
        "(() => { const row = document.querySelector('.sources tr.entry'); return [parseInt(row.children[0].textContent), parseInt(row.children[1].textContent)]; })()")


@in_browser
def test_predictions_and_logits(window):
    window.evaluate(f"inspector.change({{t: {len(TEXT) - 1}}})")
    assert f"token {len(TEXT)} of {len(TEXT)}" in shown(window, "#chosen")
    window.evaluate("inspector.change({t: 3, k: 0})")
    assert "The next token is h" in shown(window, ".next .note")
    mine = shown(window, ".next tr.row-next")
    sums = window.evaluate("""Promise.all([inspector.views[0].predictions(), inspector.views[0].logits()]).then(([p, logits]) => {
        const table = logits.tables[0], at = 3 * logits.width;
        return [p.next[3], table[at], table.subarray(at + 1, at + logits.width).reduce((a, b) => a + b, 0)];
    })""")
    assert f"{sums[0]:.4f}" in mine
    assert abs(sums[1] - sums[2]) < 1e-4


@in_browser
def test_keys_and_address(page, window):
    window.evaluate("inspector.change({t: 3, l: 0, h: 0, s: -1, x: 0, y: 0, z: 16})")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "]", "r"):
        window.press(key)
    window.evaluate("inspector.drawn()")
    state = "(({t, l, h, row}) => [t, l, h, row])(inspector.state)"
    assert window.evaluate(state) == [5, 1, 1, True]
    window.evaluate("new Promise(done => setTimeout(done, 300))")
    address = window.evaluate("location.href")
    assert "t=5" in address
    window.open("about:blank")
    window.open(address)
    window.evaluate("inspector.drawn()")
    assert window.evaluate(state) == [5, 1, 1, True]


@in_browser
def test_narrow_and_dark(window):
    grounds = set()
    for width, dark in ((400, False), (400, True), (1600, True)):
        window.show(width, 900, dark)
        window.evaluate("new Promise(done => setTimeout(done, 200))")
        assert window.evaluate("document.documentElement.scrollWidth") <= width
        grounds.add(window.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
    window.show(1400, 1000)


@in_browser
def test_side_by_side_and_checkpoints(headroom, trained, composed, text, tmp_path):
    out = tmp_path / "both.html"
    headroom("inspect", trained, composed, "--checkpoints", "all", "--file", text, "--out", out)
    with browser.Browser() as window:
        window.open(out.as_uri())
        window.evaluate("inspector.drawn()")
        window.evaluate("document.getElementById('compare').click()")
        window.evaluate("inspector.drawn()")
        assert window.evaluate("inspector.panels.length") == 2
        steps = window.evaluate("inspector.views.map(view => [view.about.run, view.about.step])")
        assert ["composed", 3] in steps and ["run", 6] in steps and len(steps) > 3
        # Move the slider of the left panel to another step.
        before = window.evaluate("inspector.panels[0].view.about.step")
        window.evaluate("(() => { const range = document.querySelector('.view input[type=range]'); range.value = 0;"
                        " range.dispatchEvent(new Event('input')); })()")
        window.evaluate("inspector.drawn()")
        assert window.evaluate("inspector.panels[0].view.about.step") < before
        # Composed heads have five terms, and each term has its share of a contribution.
        index = steps.index(["composed", 3])
        window.evaluate(f"inspector.change({{a: {index}, t: 10}})")
        window.evaluate("document.querySelector('.sources tr.entry').click()")
        window.evaluate("inspector.drawn()")
        detail = shown(window, ".sources tr.detail")
        assert "By term of the composed weights" in detail and "key, low rank" in detail and "query, gate" in detail
        assert "Its score, " in detail
        assert window.errors == []


def wait_for(window, condition):
    """Waits until an expression is true in the current page."""
    end = time.monotonic() + train_runs.PATIENCE
    while not window.evaluate(f"(() => {{ try {{ return Boolean({condition}); }} catch (error) {{ return false; }} }})()"):
        assert time.monotonic() < end, f"{condition} never came to be: {window.errors}"
        time.sleep(0.05)


@in_browser
def test_live(trained, composed):
    with Server(trained, composed) as server, browser.Browser() as window:
        window.open(server.url + "/inspect")
        # The page starts with a sample text that fits the context of 16 bytes; typing replaces the sample.
        wait_for(window, "inspector.page.tokens.join('') === 'The cat sat.'")
        window.evaluate("inspector.drawn()")
        assert window.evaluate("document.activeElement.id") == "typed"
        window.send("Input.insertText", text="the head")
        wait_for(window, "inspector.page.tokens.length === 8")
        window.evaluate("inspector.drawn()")
        assert window.evaluate("document.activeElement.id") == "typed"
        window.send("Input.insertText", text=" room")
        wait_for(window, "inspector.page.tokens.join('') === 'the head room'")
        window.evaluate("inspector.drawn()")
        # Switch a head off: the page shows the changed model beside the original one.
        window.evaluate("[...document.querySelectorAll('.tools button')].find(one => one.textContent === 'head off').click()")
        wait_for(window, "inspector.panels.length === 2")
        window.evaluate("inspector.drawn()")
        assert window.evaluate("inspector.views[1].map(0, 0).then(map => Math.max(...map.numbers))") == 0
        assert window.evaluate("inspector.views[0].map(0, 0).then(map => Math.max(...map.numbers))") > 0
        changes = window.evaluate("""inspector.views[1].changes().then(changes => {
            let sum = 0;
            for (const x of changes.divergence) sum += x;
            return [sum, changes.before[0], changes.after[0]];
        })""")
        assert changes[0] > 0 and changes[1] != changes[2]
        assert "bits (Kullback-Leibler)" in window.evaluate("document.querySelectorAll('.next')[1].textContent")
        # The URL holds the switched-off head.
        window.evaluate("new Promise(done => setTimeout(done, 300))")
        address = window.evaluate("location.href")
        window.open("about:blank")
        window.open(address)
        wait_for(window, "inspector.panels.length === 2 && inspector.page.live.switched_off.length === 1")
        window.evaluate("inspector.drawn()")
        # Switch all heads on again, then one term of a composed model off.
        window.evaluate("[...document.querySelectorAll('#live button')].find(one => one.textContent === 'all on').click()")
        wait_for(window, "inspector.panels.length === 1")
        window.evaluate("(() => { const select = document.querySelector('#live select'); select.value = 'composed';"
                        " select.dispatchEvent(new Event('change')); })()")
        wait_for(window, "inspector.page.live.model === 'composed'")
        window.evaluate("inspector.drawn()")
        window.evaluate("[...document.querySelectorAll('.sources tr')].find(row => row.textContent.startsWith('key, gate')).querySelector('button').click()")
        wait_for(window, "inspector.page.live.switched_off.length === 1")
        window.evaluate("inspector.drawn()")
        assert window.evaluate("inspector.page.live.switched_off[0].term") == "key, gate"
        assert float(shown(window, ".sources .residual")) < 1e-4
        assert window.errors == []


@in_browser
def test_live_with_a_key(trained, tmp_path):
    key = tmp_path / "key"
    key.write_text("open-sesame-0123456789\n")
    with Server(trained, "--api-key-file", key) as server, browser.Browser() as window:
        page = server.get("/inspect").text
        assert "<textarea" not in page and trained.name not in page.split('id="page">')[1].split("</script>")[0]
        assert server.post("/inspect", {"text": "a"}).status == 401
        window.send("Page.addScriptToEvaluateOnNewDocument", source="sessionStorage.setItem('headroom-key', 'open-sesame-0123456789')")
        window.open(server.url + "/inspect#text=the%20head")
        wait_for(window, "inspector.page.tokens.length === 8")
        assert window.errors == []


def test_live_refusals(trained):
    with Server(trained) as server:
        def refusal(**given):
            answer = server.post("/inspect", given)
            assert answer.status == 400
            return answer.error["message"]
        assert refusal(text="").startswith("text: ")
        assert "40" in refusal(text="x" * 40)
        assert "switched_off" in refusal(text="x", switched_off=[{"layer": 7, "head": 0}])
        assert "switched_off" in refusal(text="x", switched_off="all")
        assert "inside" in refusal(text="x", inside=1)
        assert server.get("/inspect").text.startswith("<!doctype html>")


def test_mistakes(headroom, trained, text, tmp_path):
    out = tmp_path / "page.html"
    empty, long = tmp_path / "empty.txt", tmp_path / "long.txt"
    empty.write_text("")
    long.write_text("x" * 17)
    assert str(empty) in headroom.refusal("inspect", trained, "--text", empty, "--out", out)
    assert "17 tokens" in headroom.refusal("inspect", trained, "--file", long, "--out", out)
    assert headroom.json("inspect", trained, "--text", "the head", "--out", tmp_path / "typed.html")["tokens"] == 8
    assert not out.exists()
    out.write_text("my notes")
    assert f"--out: {out}" in headroom.refusal("inspect", trained, "--text", text, "--out", out)
    assert out.read_text() == "my notes"
    os.mkfifo(tmp_path / "pipe")
    assert "regular file" in headroom.refusal("inspect", trained, "--text", text, "--out", tmp_path / "pipe")


def test_runs_of_the_same_name_are_told_apart(headroom, trained, text, tmp_path):
    for folder in ["first", "second"]:
        shutil.copytree(trained, tmp_path / folder / "run")
    out = tmp_path / "page.html"
    headroom("inspect", tmp_path / "first" / "run", tmp_path / "second" / "run" / "checkpoints" / "step_6.safetensors", "--file",
             text, "--out", out)
    assert "<title>Inside first/run and second/run" in out.read_text()
