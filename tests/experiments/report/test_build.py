"""The file itself: its schema, its size, its bytes, and that nothing breaks out of it."""

import json
import math
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from experiments.report import build, measures, pack, panels
from experiments.report.examples import Examples
from experiments.report.markup import Chart, Html, join, number, table, tag
from minigrad import saving

from .conftest import HOSTILE, data_in, unpacked

SOURCES = Path(build.__file__).parent
TEMPLATE = ("template.html", "report.css", "report.js")


def test_the_template_is_small():
    assert sum((SOURCES / name).stat().st_size for name in TEMPLATE) <= 60_000


def test_a_report_is_no_larger_than_a_picture(report, hostile):
    for path in (report.path, hostile):
        assert path.stat().st_size <= 1_500_000


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["per-vector", "single", "seq2seq"])
def test_a_default_runs_report_is_small_and_quickly_written(scenario, call, tmp_path):
    import time

    assert call(scenario, "--out", tmp_path / "run").status == 0
    assert (tmp_path / "run" / "report.html").stat().st_size <= 500_000
    started = time.process_time()
    assert call("report", tmp_path / "run").status == 0
    assert time.process_time() - started <= 5


def test_the_report_of_long_series_is_small_and_says_what_it_shows(call, tmp_path, monkeypatch):
    series = [np.random.default_rng(i).standard_normal(400) for i in range(6)]
    lines = [f"{','.join(f'{x:.3f}' for x in values)}:{'ab'[i % 2]}" for i, values in enumerate(series)]
    (tmp_path / "long.ts").write_text("@classLabel true a b\n@data\n" + "\n".join(lines))
    shape = ("--dim", 8, "--heads", 2, "--blocks", 1, "--hidden", 8, "--epochs", 1)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    named = ("--train", tmp_path / "long.ts", "--dev", tmp_path / "long.ts")
    assert call("single", *named, *shape, "--out", tmp_path / "run").status == 0
    path = tmp_path / "run" / "report.html"
    assert path.stat().st_size <= 1_000_000
    data = data_in(path)
    assert [tokens["text"] for tokens in data["tokens"]] == [f"{x}, the first 24 of 400 vectors" for x in "ab"]
    assert panels.CUT in path.read_text(encoding="utf-8")
    assert all(f"last/{p}/{layer}.attn" in data["tensors"] for p in (0, 1) for layer in data["layers"])


def test_its_lead_says_of_which_data_the_score_is(report):
    lead = re.search(r'class="lead">(.*?)</p>', report.path.read_text(encoding="utf-8"))[1]
    assert "of the words got the right tag" in lead
    assert lead.endswith("on dev, by which the best epoch was chosen, for there is no test data.")


def test_maps_that_do_not_fit_are_left_out_but_those_after_training(tagged, tmp_path, call, monkeypatch):
    monkeypatch.setattr(build, "MAPS", 0)
    copy = shutil.copytree(tagged, tmp_path / "run")
    assert call("report", copy).status == 0
    data = data_in(copy / "report.html")
    walked = {(walk["snapshot"], str(walk["probe"]), walk["layer"]) for walk in data["walks"]}
    kept = {tuple(name[:-5].split("/")) for name in data["tensors"] if name.endswith(".attn")}
    assert kept == walked | {("last", str(p), layer) for p in range(3) for layer in data["layers"]}
    assert panels.CUT not in (copy / "report.html").read_text(encoding="utf-8")


def test_the_same_files_give_the_same_bytes(tagged, tmp_path, call):
    before = (tagged / "report.html").read_bytes()
    copy = shutil.copytree(tagged, tmp_path / "run")
    (copy / "report.html").unlink()
    for _ in range(2):
        done = call("report", copy)
        assert (done.status, done.out) == (0, [str(copy / "report.html")]), done.err
        assert (copy / "report.html").read_bytes() == before


def test_a_claims_run_stands_on_the_run_card(tagged, tmp_path, call):
    copy = shutil.copytree(tagged, tmp_path / "run")
    (tmp_path / "claims").mkdir()
    row = {
        "name": "saw",
        "claim": "a <claim> of `saw`",
        "source": "somebody",
        "value": 2.5,
        "threshold": "<= 1",
        "passed": False,
    }
    (tmp_path / "claims" / "claims.json").write_text(json.dumps([row]))
    assert call("report", copy, "--claims", tmp_path / "claims").status == 0
    assert data_in(copy / "report.html")["claims"][-1] == row
    text = (copy / "report.html").read_text()
    assert "a &lt;claim&gt; of <code>saw</code>" in text
    assert '<span class="bad">FAIL</span>' in text
    before = (copy / "report.html").read_bytes()
    assert call("report", copy).status == 0  # it is one of the run's files now
    assert (copy / "report.html").read_bytes() == before


class TestRefused:
    def test_a_run_without_a_recording(self, tagged, tmp_path, call):
        copy = shutil.copytree(tagged, tmp_path / "run")
        (copy / "recording.npz").unlink()
        done = call("report", copy)
        assert done.status == 2
        assert "has no recording.npz: it was trained without a recorder" in done.err[0]

    def test_a_damaged_recording(self, tagged, tmp_path, call):
        copy = shutil.copytree(tagged, tmp_path / "run")
        (copy / "initial.npz").write_bytes(b"rubbish")
        assert "initial.npz cannot be used" in call("report", copy).err[0]

    def test_an_unfinished_run_and_no_run(self, tagged, tmp_path, call):
        copy = shutil.copytree(tagged, tmp_path / "run")
        (copy / "result.json").unlink()
        assert "has no result.json: finish the run first" in call("report", copy).err[0]
        assert "is not the directory of a run" in call("report", tmp_path).err[0]

    def test_claims_that_are_not_there(self, tagged, tmp_path, call):
        copy = shutil.copytree(tagged, tmp_path / "run")
        before = sorted(copy.iterdir())
        done = call("report", copy, "--claims", tmp_path / "nope")
        assert done.status == 2
        assert "nope is not the directory of a run of the claims: it has no claims.json" in done.err[0]
        for text in ("rubbish", "{}", '[{"claim": 1}]', "[3]"):
            (tmp_path / "claims.json").write_text(text)
            assert "holds no table of claims" in call("report", copy, "--claims", tmp_path).err[0], text
        assert sorted(copy.iterdir()) == before


# --- the data ----------------------------------------------------------------------------------------------------


def test_the_data_are_of_the_schema(report):
    data = report.data
    assert data["schema"] == "minigrad.report/1"
    assert {"run", "tokens", "claims", "tensors", "snapshots", "history", "gradcheck", "graph", "figures"} <= set(data)
    assert data["tokens"][0]["queries"] == ["(begin)", "I", "saw", "a", "saw", "(end)"]
    assert data["tokens"][0]["answers"] == ["", "PRON", "VERB", "DET", "NOUN", ""]
    assert len(data["tokens"]) == 3
    first, *_, last = data["snapshots"]
    assert (first, last) == ("first", "last")
    assert [row["epoch"] for row in data["history"]] == [1, 2, 3]
    assert all(set(claim) >= {"claim", "value", "threshold", "passed", "source"} for claim in data["claims"])
    assert all(claim["passed"] for claim in data["claims"])
    for name, packed in data["tensors"].items():
        array = unpacked(packed)
        assert len(packed["axes"]) == array.ndim, name
        assert np.isfinite(array).all(), name


def test_numbers_of_the_walk_are_float64_and_weights_are_those_that_were_trained(report, tagged):
    first = report.data["walks"][0]
    assert (first["snapshot"], first["probe"], first["whole"]) == ("last", 0, True)
    here = f"last/0/{first['layer']}."
    for name in ("x", "q", "k", "v", "scores", "attn", "b"):
        assert report.data["tensors"][here + name]["dtype"] == "float64"
        assert report.data["tensors"][here + name + ".grad"]["dtype"] == "float64"
    weights = saving.load(tagged / "weights.npz")
    kept = unpacked(report.data["tensors"][f"last/{first['layer']}.query.weight"])
    whole = weights[f"{first['layer']}.query.weight"].reshape(16, 2, 8)
    for h, components in enumerate(first["components"]):
        assert np.array_equal(kept[:, h], whole[:, h, components])


def test_the_walk_starts_at_the_second_saw(report):
    assert report.data["start"]["query"] == 4
    assert report.data["tokens"][0]["keys"][report.data["start"]["key"]] in ("I", "saw", "a")


def test_attention_stands_in_between_at_a_few_epochs(report):
    between = [name for name in report.data["tensors"] if name.split("/")[0] in ("1", "2")]
    assert between
    assert all(name.endswith(".attn") for name in between)
    for snapshot in ("first", "last"):
        for p in range(3):
            for path in report.data["layers"]:
                attn = unpacked(report.data["tensors"][f"{snapshot}/{p}/{path}.attn"])
                np.testing.assert_allclose(attn.sum(-1), 1, rtol=1e-6)
                assert f"{snapshot}/{p}/{path}.attn.grad" in report.data["tensors"]


def test_json_has_no_nan_and_ends_no_element():
    text = build.as_json({"a": [math.nan, np.float32(0.5), -math.inf], "</script>": "<!--\u2028"})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": [None, 0.5, None], "</script>": "<!--\u2028"}


def test_tensors_come_back():
    rng = np.random.default_rng(0)
    tensors = pack.Tensors()
    arrays = {
        "a": rng.standard_normal((2, 3)),
        "b": rng.standard_normal((4,)).astype(np.float32),
        "c": rng.integers(-100, 100, (2, 2), dtype=np.int8),
        "d": np.zeros((0, 3)),
    }
    for name, array in arrays.items():
        tensors.add(name, array.T if array.ndim == 2 else array, ["axis"] * array.ndim)
    for name, array in arrays.items():
        assert np.array_equal(pack.unpack(json.loads(json.dumps(tensors.packed[name]))), array.T)
    with pytest.raises(ValueError, match="has 2 axes, and 1 were named: axis"):
        tensors.add("e", arrays["a"], ["axis"])


def test_the_figures_are_data_too(report):
    figures = {figure["title"]: figure for figure in report.data["figures"]}
    assert list(figures) == ["Loss", "Score", "Learning rate", "The error of a difference by its step"]
    text = report.path.read_text(encoding="utf-8")
    for figure in figures.values():
        assert figure["alt"].startswith(f"{figure['title']}: ")
        assert f'aria-label="{figure["alt"]}' in text
        head, *rows = figure["table"]
        assert all(len(row) == len(head) for row in rows)
    head, *rows = figures["Loss"]["table"]
    assert head[:2] == ["epoch", "training, mean of the epoch"]
    shown = [[row["epoch"], row["loss"]] for row in report.data["history"]]
    np.testing.assert_allclose([row[:2] for row in rows], shown, rtol=1e-5)


def test_a_colour_means_the_same_in_neighbouring_charts():
    rows = [{"epoch": 1, "loss": 1.0, "lr": 0.1, "exact_match": 0.5}]
    loss, score, _ = panels.curves(rows, [[1.0, 0.5, 1.0, 0.5]], "exact_match")
    losses, scores = ({name: style for (name, _), style in zip(chart.curves, chart.styles)} for chart in (loss, score))
    assert losses["training, one batch afterwards"] == scores["labels, training, one batch"]
    assert losses["held out, one batch"] == scores["labels, held out, one batch"]
    assert len({*losses.values(), *scores.values()}) == 4
    assert "whole sequences, all of dev (exact match)" in scores  # which is no share of labels


def test_gradients_are_checked_by_the_largest_of_their_parameter(report, tagged):
    state = saving.load(tagged / "weights.npz")
    text = report.path.read_text(encoding="utf-8")
    panel = re.search(r'<section id="gradcheck".*?</section>', text, re.S)[0]
    errors = {}
    for one in report.data["gradcheck"]:
        assert len(one["indices"]) == len(one["analytic"]) == len(one["numeric"])
        assert all(len(index) == state[one["name"]].ndim for index in one["indices"])
        assert all(np.less(index, state[one["name"]].shape).all() for index in one["indices"])
        largest = max(map(abs, one["analytic"]))
        for index, a, n in zip(one["indices"], one["analytic"], one["numeric"]):
            errors[one["name"], str(list(index))] = abs(a - n) / largest
    assert len(errors) > 90
    maps = re.findall(r'class="map" role="img" aria-label="([^"]*)"', panel)
    shown = {
        (one["name"], index): float(e)
        for one, told in zip(report.data["gradcheck"], maps)
        for index, e in re.findall(r"(\[[^]]*\]): (\S+?)(?:,|$)", told)
    }
    assert shown.keys() == errors.keys()
    worst = re.search(r"The ten worst.*?</table>", panel, re.S)[0]
    found = re.findall(r"<code>([^<]*)</code></th><td>([^<]*)</td><td>[^<]*</td><td>[^<]*</td><td>([^<]*)</td>", worst)
    assert len(found) == 10
    for name, index, error in found:
        assert float(error.replace("−", "-")) == pytest.approx(shown[name, index], rel=0.5)
    assert float(found[0][2].replace("−", "-")) == pytest.approx(max(shown.values()), rel=0.5)
    assert "relative to the largest gradient" in panel


def test_an_error_is_relative_to_the_largest_gradient():
    analytic = np.array([2.0, 1e-3, np.nan])
    one = measures.Checked("w", [(0,), (1,), (2,)], analytic[:2], analytic[:2] + 1e-9, np.zeros(2, bool))
    np.testing.assert_allclose(one.error, [5e-10, 5e-10], rtol=1e-6)
    one = measures.Checked("w", [(0,), (1,), (2,)], analytic, analytic, np.ones(3, bool))
    assert one.error[2] == np.inf  # a NaN is not right
    zero = measures.Checked("w", [(0,)], np.zeros(1), np.array([1e-12]), np.zeros(1, bool))
    assert zero.error[0] == 1e-12
    rounded = measures.Checked("w", [(0,)], np.array([2e-17]), np.zeros(1), np.zeros(1, bool))
    assert rounded.error[0] == 2e-17


def test_modules_that_did_nothing_are_left_out_of_the_graph(report):
    text = report.path.read_text(encoding="utf-8")
    tree = re.search(r'<div class="tree">.*?</section>', text, re.S)[0]
    assert "inputs.norm: LayerNorm" in tree
    assert "dropout" not in tree.lower()
    assert "<ul></ul>" not in tree


def test_cosines_have_a_scale(report):
    panel = re.search(r'<section id="samples".*?</section>', report.path.read_text(encoding="utf-8"), re.S)[0]
    assert re.search(r"−1 <span[^>]*>(<i [^>]*></i>){6}</span> 1", panel)


# --- nothing breaks out ------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """All tags of a page, and the scripts among them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts = [], 0
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        self.scripts += name == "script"
        assert not any(key.startswith("on") for key, _ in attributes), attributes


def test_hostile_words_stay_text(hostile):
    text = hostile.read_text(encoding="utf-8")
    assert HOSTILE not in text
    found = Elements(text)
    assert found.scripts == 2
    assert "img" not in found.tags
    words = {word for tokens in data_in(hostile)["tokens"] for word in tokens["queries"]}
    assert HOSTILE in words


def test_no_id_stands_twice_without_javascript(report):
    text = re.sub(r"<script.*?</script>", "", report.path.read_text(encoding="utf-8"), flags=re.S)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) > 20
    assert len(ids) == len(set(ids))


# --- what Python draws -------------------------------------------------------------------------------------------


def test_elements_escape_their_text_and_attributes():
    assert (
        tag("p", "<b>", Html("<i></i>"), ["&", 3], title='"', class_=None)
        == '<p title="&quot;">&lt;b&gt;<i></i>&amp;3</p>'
    )
    assert join(None, "a") == "a"


@pytest.mark.parametrize(
    ("x", "shown"), [(0.0, "0"), (-1.5, "−1.5"), (1e-7, "1e−7"), (123456.0, "1.235e5"), (math.inf, "∞"), (None, "none")]
)
def test_numbers_are_short(x, shown):
    assert number(x) == shown


def test_a_curve_of_one_point_is_seen():
    drawn = Chart("Loss", ("epoch", [1.0]), "mean loss", [("train", [3.0])]).html()
    [points] = re.findall(r'points="([^"]*)"', drawn)
    (x1, y1), (x2, y2) = ([float(number) for number in pair.split(",")] for pair in points.split())
    assert x2 - x1 == 12
    assert y1 == y2


def test_a_chart_names_its_axes_and_has_a_table():
    drawn = Chart(
        "Loss", ("epoch", [1.0, 2.0, 3.0]), "mean loss", [("train", [3.0, None, 1.0]), ("test", [2.0, 2.0, 2.0])]
    ).html()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert {"epoch", "mean loss"} <= set(texts)
    assert len(re.findall("<polyline", drawn)) == 2
    assert len(re.findall("<line", drawn)) == 2  # their samples in the legend
    assert "<td>none</td>" in drawn
    for points in re.findall(r'points="([^"]*)"', drawn):
        for pair in points.split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= 400
            assert 0 <= y <= 240


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [1e-9, 1e9], [None, None], [-5.0, 5.0]])
@pytest.mark.parametrize("log", [False, True])
def test_a_chart_of_odd_values_is_drawn(values, log):
    xs = [float(i + 1) for i in range(len(values))]
    assert "<svg" in Chart("t", ("x", xs), "y", [("a", values)], log=log).html()


def test_a_table_has_headers_of_rows_and_columns():
    drawn = table(["a", "b"], [["<", 0.25]], "c")
    assert '<th scope="col" class="left">a</th><th scope="col">b</th>' in drawn
    assert '<th scope="row">&lt;</th><td>0.25</td>' in drawn


def test_the_command_makes_the_run_again():
    config = {
        "scenario": "single",
        "settings": {"seed": 3, "dim": 16, "deltas": True, "lr": 0.1},
        "files": {"train": {"path": "/my data/a.npz", "sha256": ""}},
        "label": "who",
    }
    defaults = {"seed": 3, "dim": 64, "deltas": False, "lr": 0.1}
    assert (
        panels.command(config, defaults)
        == "python -m experiments single --train '/my data/a.npz' --label who --seed 3 --dim 16 --deltas true"
    )


def test_examples_are_repeated_without_names():
    example = Examples([np.arange(3)[None]], {"valid": np.ones((1, 3), bool)}, np.zeros((1, 3), int), None, [], [], [])
    many = example.repeated(4)
    assert many.inputs[0].shape == many.keywords["valid"].shape == many.labels.shape == (4, 3)
