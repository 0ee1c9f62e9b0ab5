"""Draws made-up documents in a browser: charts, tables and maps."""

import base64
import json
import re
import zlib

import browser
import pytest

pytestmark = pytest.mark.skipif(browser.program() is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def window():
    with browser.Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def show(headroom, window, tmp_path_factory):
    """Shows a page of the given blocks, without errors."""
    file = tmp_path_factory.mktemp("page") / "page.html"
    headroom("cost", "demo/dense_h8", "--vary", "model.attention.n_heads=2,4", "--plot", file)
    whole = file.read_text()

    def shown(*blocks, **given):
        document = json.dumps({"title": "t", "header": [], "blocks": blocks, **given}).replace("<", "\\u003c")
        page = re.sub('(?s)(id="page">).*?(</script>)', lambda found: found[1] + document + found[2], whole, count=1)
        file.write_text(page)
        window.open(file.as_uri())
        assert window.errors == []
        return window

    return shown


def lines(*all, **given):
    return {"chart": "lines", "title": "a chart", "x_label": "steps", **given,
            "lines": [{"name": f"run{i}", "style": i, **line} for i, line in enumerate(all)]}


def texts(window, selector):
    return window.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.textContent)")


def places(window, selector, name):
    return [float(one) for one in
            window.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.getAttribute('{name}'))")]


def test_labels_are_in_the_order_of_the_ends_and_apart(show):
    ends = [5.0, 5.001, 5.002, 5.0005, 4.9]
    window = show(lines(*({"points": [[10, 20], [100, end]]} for end in ends)))
    labels = places(window, "text.label", "y")
    order = sorted(range(len(ends)), key=lambda i: ends[i])
    for lower, higher in zip(order, order[1:]):
        assert labels[lower] - labels[higher] >= 15 - 0.11


def test_a_pointer_sees_the_values_of_all_lines(show):
    window = show(lines({"points": [[100, 20], [1000, 8]]}, {"points": [[1000, 12], [2000, None]], "faint": True}))
    assert "1.00 k steps\nrun0: 8.00\nrun1: 12.00 (thin line)" in texts(window, ".strip title")
    assert window.evaluate("document.querySelector('svg.chart').getAttribute('aria-label')") == "a chart"


def test_learning_rates_stand_over_zero(show):
    window = show(lines({"points": [[0, 2e-5], [10, 1e-3], [100, 4e-4]]}, y="from_zero", end_values=True))
    y = places(window, "g.end circle", "cy")
    assert (290 - y[2]) / (290 - y[1]) == pytest.approx(0.4, abs=0.01)
    assert {"6e-4", "0", "run0: 4e-4"} <= set(texts(window, "svg text"))


def test_steep_starts_are_cut_off_but_bands_are_not(show):
    window = show(lines({"points": [[10, 9000], [500, 8], [1000, 7]], "band": [[500, 7, 9], [1000, 6.5, 20]], "style": -2,
                         "name": "lookup_switchhead_h4"}))
    assert "lookup_switchhead_h4" in texts(window, "text.label")
    y = places(window, "g.end circle", "cy")
    assert y[0] < 0 < y[1]
    assert window.evaluate("document.querySelector('.band.s1.neutral').getBBox().y") >= 12


def test_ticks_are_round(show):
    for low, high in (7.0, 90.0), (7.3, 8.2), (1.01, 1.02), (120.0, 1e7), (1.0, 1e14):
        ticks = texts(show(lines({"points": [[0, low], [1000, high]]})), "text.y")
        assert 3 <= len(ticks) <= 9 and all(re.fullmatch(r"[0-9.]+(e[0-9]+)?( [kMGT])?", tick) for tick in ticks), ticks


def test_labels_of_points_touch_nothing(show):
    points = [{"name": f"point_{i}", "at": [1e6 * (1 + i % 2), 7 + 0.01 * i], "style": i, "interval": [6.9, 7.2]} for i in range(8)]
    gap = {"from": [1e6, 7.05], "to": [3e6, 7.05], "text": "3.00", "style": -2}
    window = show({"chart": "scatter", "title": "t", "x_label": "MACs", "points": points, "gaps": [gap],
                   "lines": [{"from": [1e6, 7], "to": [2e6, 7.1], "style": -1}]})
    boxes = window.evaluate("[...document.querySelectorAll('text.label')].map(one => { const b = one.getBBox(); return [b.x, b.y, b.width, b.height]; })")
    assert len(boxes) == 8
    for i, (x, y, width, height) in enumerate(boxes):
        assert x >= 0 and x + width <= 485
        assert all(x > ox + ow or ox > x + width or y + height - 4 > oy + oh or oy + 4 > y + height or y + 4 > oy + oh - 4
                   or oy + 4 > y + height - 4 for ox, oy, ow, oh in boxes[:i])
    assert "point_0: 7.00 at 1.00 M" in texts(window, "circle title")
    assert window.evaluate("document.querySelectorAll('.reach').length") == 9


def test_intervals_include_zero(show):
    window = show({"chart": "intervals", "title": "t", "rows": [{"name": "b", "mean": -0.2, "low": -0.3, "high": -0.1, "text": "x", "style": 1}]})
    assert "0" in texts(window, "text.x") and texts(window, "text.name") == ["b: x"]


def test_an_accuracy_has_a_linear_axis_within_its_bounds(show):
    window = show(lines({"points": [[100, 0.2], [1000, 0.99]]}, bounds=[0, 1]))
    assert [float(tick) for tick in texts(window, "text.y")] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_maps_show_both_signs(show):
    shades = base64.b64encode(zlib.compress(bytes([0, 127, 129, 64]))).decode()
    cells = {"rows": 2, "columns": 2, "shades": shades}
    window = show({"maps": [{"title": "head 0", "cells": cells, "full": 0.5, "row_names": ["a", "b"], "column_names": ["c", "d"],
                             "row_label": "query", "column_label": "key", "width": 240, "left": cells}]})
    window.evaluate("new Promise(done => setTimeout(done, 200))")
    assert window.evaluate("document.querySelectorAll('.heat').length") == 4 and window.errors == []
    assert {"a", "b", "c", "d", "key", "full: 0.50"} <= set(texts(window, "svg text")) and "head 0" in texts(window, "p.name")


def test_texts_are_no_markup(show):
    evil = "</script><img src=x onerror='document.title=1'>"
    window = show({"heading": evil}, {"sentences": [evil], "kind": "lead"}, {"note": evil}, {"code": evil},
                  {"table": {"columns": ["name", "n"], "rows": [[evil, {"text": "1", "best": True, "bar": [0.5, 1]}]]}, "card": "card"},
                  {"entries": [["Command", evil, True], ["Empty", ""]]}, {"facts": [["x", evil]]}, {"details": evil, "blocks": []},
                  {"legend": [{"name": evil, "style": 0, "text": "7"}]}, {"section": evil, "id": "s", "blocks": []},
                  {"samples": [{"name": evil, "style": 0, "texts": [{"step": 1, "prompt": evil, "text": "b"}]}]},
                  {"figure": evil, "remark": evil, "blocks": [lines({"name": evil, "points": [[1, 2]]})]}, title=evil, refresh=60)
    assert window.evaluate("document.images.length") == 0 and window.evaluate("document.title") != "1"
    assert texts(window, "h1") == [evil] and texts(window, "td.name") == [evil] and texts(window, "td.best") == ["1"]
    assert texts(window, "dl:not(.facts) dt") == ["Command"] and "updated during training" in texts(window, ".brand")[0]
