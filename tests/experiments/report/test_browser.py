"""The report as a reader meets it, in a headless Chromium."""

import base64
import itertools
import re
import shutil
import sys

import numpy as np
import pytest

from experiments.report import walk as kept

from .conftest import HOSTILE, data_in, unpacked

pytestmark = pytest.mark.xdist_group("browser")  # one worker makes the run and starts the browser once

STEP = """() => {
  const shown = (cell) => cell.innerText;
  const number = (cell) => Number(cell.querySelector("data").value);
  const terms = [...document.querySelectorAll("#operands td.term")];
  const difference = document.querySelector("#difference"), value = document.querySelector("#value");
  return {
    key: document.querySelector("#steps [aria-current]").textContent,
    said: document.getElementById("live").textContent,
    terms: terms.map(shown), exact: terms.map(number), value: shown(value), exactValue: number(value),
    difference: difference && number(difference),
    verdict: document.querySelector("#check .good, #check .bad")?.innerText,
    lit: [...document.querySelectorAll("#matrix .lit-cell data")].map((x) => Number(x.value)),
    matrix: document.querySelector("#matrix")?.innerText ?? "",
    node: document.querySelector("#diagram .node.on")?.textContent,
    ids: [...document.querySelectorAll("[id]")].map((one) => one.id),
    hash: location.hash,
  };
}"""
STEPS = f"""() => {{
  const step = {STEP}, found = [], stepper = document.getElementById("stepper");
  const press = (key) => stepper.dispatchEvent(new KeyboardEvent("keydown", {{ key, bubbles: true }}));
  for (press("Home"); ; press("ArrowRight")) {{
    found.push(step());
    if (document.querySelector("[data-key=End]").disabled) return found;
  }}
}}"""


def read(shown):
    return float(shown.replace("−", "-"))


def go(page, *keys):
    for key in keys:
        page.keyboard.press(key)
    return page.evaluate(STEP)


def steps_of(page):
    """Every step from the first (in the page, where it takes a fifth of the time that keys of the browser's take)."""
    return page.evaluate(STEPS)


FORWARD = ["q", "k", "v", "α", "Σe", "α′", "b", "y", "+", "L"]
BACKWARD = ["∂b", "∂v", "∂α′", "S", "∂α", "Σ∂α", "∂p", "∂q", "∂k", "∂Wq", "∂Wk", "∂Wv", "a←q", "a←k", "a←v", "∂a", "∂x"]


# --- the walk ----------------------------------------------------------------------------------------------------


class Captured:
    """The number that each step must show, looked up in the file's tensors by the state of the walk."""

    def __init__(self, data, hash_):
        self.state = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", hash_)}
        self.walk = data["walks"][self.state["walk"]]
        self.data = data

    def get(self, name):
        own = f"{self.walk['snapshot']}/{self.walk['probe']}/{self.walk['layer']}.{name}"
        return unpacked(self.data["tensors"][own])

    def value(self, key):
        h, i, j, f, k = (self.state[name] for name in ("head", "query", "key", "dim", "component"))
        c = self.walk["components"][h][k]
        column = h * self.get("v").shape[2] + c
        places = {
            "q": ("q", h, i, c), "k": ("k", h, j, c), "v": ("v", h, j, c), "α": ("scores", h, i, j),
            "α′": ("attn", h, i, j), "b": ("b", i, column), "y": ("out", i, f), "∂b": ("b.grad", i, column),
            "∂v": ("v.grad", h, j, c), "∂α′": ("attn.grad", h, i, j), "∂α": ("scores.grad", h, i, j),
            "∂q": ("q.grad", h, i, c), "∂k": ("k.grad", h, j, c), "∂Wq": ("query.weight.grad", f, h, k),
            "∂Wk": ("key.weight.grad", f, h, k), "∂Wv": ("value.weight.grad", f, h, k), "a←q": ("query.grad", i, f),
            "a←k": ("key.grad", i, f), "a←v": ("value.grad", i, f), "∂a": ("x.grad", i, f), "∂x": ("input.grad", i, f),
        }  # fmt: skip
        if key == "∂p":
            clip = self.walk["clip"]
            return self.get("table.grad")[h, np.clip(j - i, -clip, clip) + clip]
        if key == "Σe":
            scores = self.get("scores")[h, i]
            return np.exp(scores - scores.max()).sum()
        if key == "S":
            return (self.get("attn")[h, i] * self.get("attn.grad")[h, i]).sum()
        if key == "+":
            return self.get("input")[i, f] + self.get("out")[i, f]
        if key == "L":
            return self.data["losses"][f"{self.walk['snapshot']}/{self.walk['probe']}"]["loss"]
        if key == "Σ∂α":
            return 0.0
        name, *at = places[key]
        return self.get(name)[tuple(at)]


STATES = ["", "#step=0&walk=0&head=0&query=1&key=3&component=3&dim=2", "#step=0&walk=1&head=1&query=2&key=2&dim=1"]


@pytest.mark.parametrize("state", STATES)
def test_at_every_step_the_operands_give_the_number_that_minigrad_captured(state, report, look):
    page = look(report.path, state)
    page.click("[data-key=d]")
    found = steps_of(page)
    assert [step["key"] for step in found] == FORWARD + BACKWARD
    for number, step in enumerate(found, 1):
        assert step["said"].startswith(f"Step {number} of {len(found)}: ")
        value = read(step["value"])
        assert abs(sum(map(read, step["terms"])) - value) <= 1e-12, step
        captured = Captured(report.data, step["hash"]).value(step["key"])
        assert value == pytest.approx(captured, abs=1e-15, rel=1e-15), step
        assert [read(term) for term in step["terms"]] == step["exact"]  # all digits are shown
        assert value == step["exactValue"]
        if number > len(FORWARD):
            assert abs(step["difference"] - value) <= 1e-6, step
            assert step["verdict"] == "they agree."
        else:
            assert step["difference"] is None
    assert max(abs(step["difference"]) for step in found if step["difference"] is not None) > 1e-3
    assert page.said == []


def test_every_query_key_head_and_walk_gives_its_number(report, look):
    """Through the page's own controls, seen by the sums alone."""
    page = look(report.path)
    for walk in range(len(report.data["walks"])):
        page.evaluate(f"location.hash = '#step=0&walk={walk}&query=0&key=0&head=0'")
        page.wait_for_function(f"location.hash.includes('walk={walk}&')")
        worst = page.evaluate("""() => {
          const stepper = document.getElementById("stepper");
          const send = (key, shiftKey = false) =>
            stepper.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey, bubbles: true }));
          const number = (node) => Number(node.querySelector("data").value);
          let worst = 0, count = 0;
          for (let turn = 0; turn < 2; turn++) {
            send("Home");
            for (let step = 0; step < 40; step++) {
              const total = [...document.querySelectorAll("#operands td.term")].map(number).reduce((a, b) => a + b, 0);
              const gap = Math.abs(total - number(document.querySelector("#value")));
              worst = gap <= worst ? worst : gap;
              count += 1;
              if (document.querySelector("[data-key=End]").disabled) break;
              send("ArrowRight");
            }
            send("ArrowDown");
            send("ArrowDown", true);
            send("]");
          }
          return [worst, count];
        }""")
        assert worst[0] <= 1e-12
        assert worst[1] >= 2 * 14
    assert page.said == []


def test_the_loss_follows_from_the_numbers_beside_it_with_and_without_smoothing(report, look, call, tmp_path):
    named = ("--train", report.path.parents[1] / "train.conllu", "--dim", 8, "--heads", 2, "--hidden", 8, "--epochs", 1)
    done = call("per-vector", *named, "--label-smoothing", 0, "--out", tmp_path / "hard")
    assert done.status == 0, done.err
    for path, smoothing in ((report.path, 0.1), (tmp_path / "hard" / "report.html", 0)):
        page = look(path, "#step=9")
        assert page.evaluate(STEP)["key"] == "L"
        rows = page.evaluate("""() => [...document.querySelectorAll("#operands tbody tr")].map(
          (row) => [...row.querySelectorAll("data")].map((x) => Number(x.value)))""")
        assert len(rows) == 4
        for p, unlikely, *mean, share in rows:
            assert unlikely == pytest.approx(-np.log(p), abs=1e-12)
            assert len(mean) == (1 if smoothing else 0)
            assert share == pytest.approx(((1 - smoothing) * unlikely + smoothing * sum(mean)) / 4, rel=1e-12)
        for said in (page.locator("#step").inner_text(), page.locator("#run").inner_text()):
            assert ("label smoothing" in said) == bool(smoothing)
            assert ("0.1" in said) or not smoothing
        formula = "L=14∑[(1−ε)(−lnp)+εmean(−lnp)]" if smoothing else "L=14∑(−lnp)"  # a fourth of the sum
        assert page.locator("#step math").first.text_content() == formula


def test_a_wrong_gradient_is_told(report, look, tmp_path):
    """The check can fail: with another number in the file the page says so."""
    text = report.path.read_text(encoding="utf-8")
    name = f"last/0/{report.data['walks'][0]['layer']}.attn.grad"
    packed = report.data["tensors"][name]
    wrong = base64.b64encode((unpacked(packed) + 1e-5).tobytes()).decode()
    path = tmp_path / "wrong.html"
    path.write_text(text.replace(packed["b64"], wrong), encoding="utf-8")
    page = look(path, "#step=12")
    step = page.evaluate(STEP)
    assert step["key"] == "∂α′"
    assert step["verdict"] == "they disagree."
    assert abs(sum(step["exact"]) - step["exactValue"]) > 1e-6


def test_the_matrix_view_lights_the_same_number(report, look):
    page = look(report.path)
    page.click("[data-key=m]")
    assert page.get_by_text("one column a vector as in the lecture").count() == 1
    lit = {step["key"]: step for step in steps_of(page) if step["lit"]}
    assert {"q", "k", "v", "α", "α′", "b", "∂v", "∂α′", "∂α", "∂q", "∂k", "∂Wq", "∂Wk", "∂Wv", "∂a"} <= set(lit)
    for key, step in lit.items():
        if key not in ("Σe", "S", "Σ∂α"):  # these stand for a whole column
            assert step["lit"][-1] == pytest.approx(step["exactValue"], rel=1e-12), key


def test_what_if_is_recomputed_and_says_so(report, look):
    page = look(report.path, "#step=3&whatif=1")
    assert page.get_by_text("Recomputed on this page").count() == 1
    state = Captured(report.data, page.evaluate("location.hash"))
    rows = page.evaluate("""() => [...document.querySelectorAll("#whatif tbody tr")].map(
      (row) => [...row.querySelectorAll("data")].map((x) => Number(x.value)))""")
    h, i = state.state["head"], state.state["query"]
    scores, attn = state.get("scores")[h, i], state.get("attn")[h, i]
    np.testing.assert_allclose([row[:2] for row in rows], np.transpose([scores, attn]), rtol=1e-9)  # trained with it
    root = np.sqrt(state.walk["key_dim"])
    bias = scores - state.get("k")[h] @ state.get("q")[h, i] / root
    without = (scores - bias) * root + bias
    np.testing.assert_allclose([row[2] for row in rows], without, rtol=1e-9)
    np.testing.assert_allclose([row[3] for row in rows], np.exp(without) / np.exp(without).sum(), rtol=1e-9)


def test_links_lead_to_the_steps_that_made_the_operands(report, look):
    page = look(report.path, "#step=3")
    page.locator("#step .links button", has_text="k").click()
    assert page.evaluate(STEP)["key"] == "k"


def test_the_reader_picks_what_to_walk_through(report, look):
    page = look(report.path)
    tokens = report.data["tokens"]
    for name, value in (("layer", "body.blocks.0.attention"), ("head", "0"), ("query", "1")):
        page.locator(f"#choose-{name}").select_option(value)
    state = Captured(report.data, page.evaluate(STEP)["hash"])
    assert state.walk["layer"] == "body.blocks.0.attention"
    assert (state.state["head"], state.state["query"]) == (0, 1)
    page.locator("#choose-probe").select_option("1")
    state = Captured(report.data, page.evaluate(STEP)["hash"])
    assert state.walk["probe"] == 1
    options = page.locator("#choose-query option").all_inner_texts()
    assert options == [f"{i}: {name}" for i, name in enumerate(tokens[1]["queries"], 1)]
    page.locator("#choose-snapshot").select_option("first")
    assert Captured(report.data, page.evaluate(STEP)["hash"]).walk["snapshot"] == "first"
    assert page.said == []


# --- by keyboard alone -------------------------------------------------------------------------------------------


def test_a_walk_by_keyboard_alone(report, look):
    page = look(report.path)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    for _ in range(20):
        if page.evaluate("document.activeElement.id") == "stepper":
            break
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "stepper"
    start = Captured(report.data, go(page, "Home")["hash"]).state
    assert go(page, "ArrowRight")["key"] == "k"
    assert go(page, "ArrowLeft")["key"] == "q"
    assert go(page, "b")["key"] == "∂b"
    assert go(page, "f")["key"] == "q"
    assert go(page, "End")["key"] == "∂x"
    assert go(page, "ArrowRight")["key"] == "∂x"
    assert go(page, "Home")["key"] == "q"
    n = len(report.data["tokens"][0]["queries"])
    state = Captured(report.data, go(page, "ArrowDown")["hash"]).state
    assert (state["query"], state["key"]) == (start["query"], (start["key"] + 1) % n)
    state = Captured(report.data, go(page, "ArrowUp", "Shift+ArrowUp")["hash"]).state
    assert (state["query"], state["key"]) == (start["query"] - 1, start["key"])
    assert Captured(report.data, go(page, "]")["hash"]).state["component"] == 1
    assert Captured(report.data, go(page, "[")["hash"]).state["component"] == 0
    assert page.locator("#matrix").count() == 0
    go(page, "ArrowRight", "ArrowRight", "ArrowRight", "m", "w")
    assert page.locator("#matrix").count() == page.locator("#whatif").count() == 1
    go(page, "?")
    assert page.evaluate("document.getElementById('keys').open")
    page.keyboard.press("Escape")
    assert not page.evaluate("document.getElementById('keys').open")
    assert page.evaluate("document.activeElement.closest('#stepper') !== null")  # the focus is back
    assert page.said == []


def test_the_state_is_in_the_address(report, look):
    page = look(report.path, "#step=5&walk=1&head=1&query=3&key=2&component=1&dim=1&matrix=1&whatif=0")
    step = page.evaluate(STEP)
    assert step["key"] == "α′"
    state = Captured(report.data, step["hash"]).state
    assert (state["walk"], state["head"], state["query"], state["key"], state["matrix"]) == (1, 1, 3, 2, 1)
    for odd in ("#step=9999&walk=77&head=50&query=400", "#step=-1&key=<b>"):
        page = look(report.path, odd)
        assert page.evaluate(STEP)["said"].startswith("Step ")
        assert page.said == []


def test_the_address_leads_to_a_panel_and_keeps_the_walk(report, look):
    top = "(id) => document.getElementById(id).getBoundingClientRect().top"
    page = look(report.path, "#walk", reduced_motion="reduce")
    assert abs(page.evaluate(top, "walk")) < 5
    assert "at=walk" in page.evaluate("location.hash")
    page = look(report.path, "#step=7&query=1", reduced_motion="reduce")
    assert page.evaluate("scrollY") == 0
    page.click("[data-key=d]")
    page.click("nav a[href='#gradcheck']")
    page.wait_for_function("location.hash.includes('at=gradcheck')")
    assert abs(page.evaluate(top, "gradcheck")) < 5
    page = look(report.path, page.evaluate("location.hash"), reduced_motion="reduce")
    step = page.evaluate(STEP)
    assert (step["key"], Captured(report.data, step["hash"]).state["query"]) == ("y", 1)
    assert len(step["value"]) > 12  # all digits
    assert page.get_attribute("[data-key=d]", "aria-pressed") == "true"
    assert abs(page.evaluate(top, "gradcheck")) < 5
    page.focus("#stepper")
    assert "at=walk" in go(page, "ArrowLeft")["hash"]  # a reader who goes on there is found there again
    assert page.said == []


def test_what_can_be_chosen_is_explained(report, look):
    page = look(report.path)
    assert "4 of the 8 components c and 4 of the 16 components d" in page.locator("#choices").inner_text()
    page.locator("#choose-snapshot").select_option("first")
    assert "To keep this file small, the walk begins at the scores here" in page.locator("#choices").inner_text()


def test_snapshots_stand_in_the_order_of_training(report, look):
    options = look(report.path).locator("#map-snapshot option").all_inner_texts()
    assert [text.split("(")[0].strip() for text in options] == [
        "before training", "after epoch 1", "after epoch 2", "after training"
    ]  # fmt: skip


def test_the_matrix_view_frames_what_it_says(report, look):
    found = steps_of(look(report.path, "#step=0&matrix=1"))
    assert any(step["matrix"] for step in found)
    for step in found:
        adds = "whose products add up" in step["matrix"]
        assert adds == (bool(step["matrix"]) and step["key"] not in ("Σe", "α′", "S", "∂α", "Σ∂α", "∂a")), step["key"]


def test_the_diagram_lights_the_number_of_the_step(report, look):
    lit = {step["key"]: step["node"] for step in steps_of(look(report.path))}
    assert (lit["q"], lit["∂a"], lit["∂x"]) == ("q", "∂a", "∂x")
    assert look(report.path, "#walk=4").locator("#diagram .node").count() == 9  # no vector before the norm is kept


def test_a_grid_is_walked_by_arrows_and_enter_opens_the_walk(report, look):
    page = look(report.path)
    grid = page.locator("#grids table").first
    assert grid.locator("[data-at][tabindex='0']").count() == 1
    grid.locator("[data-at='0,0']").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.dataset.at") == "1,1"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("I asks I: ")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.at") == "0,1"  # it ends at the edge
    page.keyboard.press("Enter")
    step = page.evaluate(STEP)
    state = Captured(report.data, step["hash"])
    assert step["key"] == "α′"
    assert (state.state["query"], state.state["key"]) == (0, 1)
    assert page.evaluate("document.activeElement.id") == "stepper"


def test_grids_show_attention_its_gradient_and_their_product(report, look):
    page = look(report.path)
    heads = page.locator("#grids h3").all_inner_texts()
    assert [head.split(",")[0] for head in heads] == ["α′", "∂L/∂α′", "α′ · ∂L/∂α′"]
    assert page.locator("#grids").get_by_text("query (asks) ↓").count() == 3
    assert page.locator("#grids").get_by_text("key (is asked) →").count() == 3
    walk, start = report.data["walks"][0], report.data["start"]
    attn = unpacked(report.data["tensors"][f"last/0/{walk['layer']}.attn"])[start["head"]]
    texts = page.locator("#grids table").first.locator("[data-at]").all_inner_texts()
    assert texts == [f"{v:.2f}" for v in attn.ravel()]
    page.locator("#map-snapshot").select_option("1")
    assert page.get_by_text("Gradients are kept before and after training.").count() == 2


# --- the page as a whole -----------------------------------------------------------------------------------------


def test_it_asks_for_nothing_but_itself_and_says_nothing(report, look):
    page = look(report.path)
    steps_of(page)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert [url for url in page.requested if not url.startswith("data:")] == [report.path.as_uri()]
    assert page.said == []


def test_its_policy_lets_nothing_in(report, look):
    page = look(report.path)
    answered = []
    page.on("response", lambda response: answered.append(response.url))
    page.evaluate("""() => {
      for (const name of ["img", "script", "iframe"]) {
        const one = document.createElement(name);
        one.src = "https://example.org/";
        document.body.append(one);
      }
      return fetch("https://example.org/").catch(() => 0);
    }""")
    page.wait_for_timeout(50)
    assert answered == []
    assert all("Content Security Policy" in said for said in page.said)
    assert len(page.said) >= 3


def test_the_data_can_be_downloaded(report, look):
    page = look(report.path)
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename == "report.json"
    assert page.said == []


def test_without_javascript_the_walk_stands_there_as_tables(report, look):
    page = look(report.path, java_script_enabled=False)
    walk = page.locator("#walk").inner_text()
    assert not page.locator("#stepper").is_visible()
    assert "Without JavaScript" in walk
    first, start = report.data["walks"][0], report.data["start"]
    here = f"last/0/{first['layer']}."
    for name in ("scores", "attn", "attn.grad", "scores.grad"):
        for value in unpacked(report.data["tensors"][here + name])[start["head"], start["query"]]:
            mantissa = f"{value:.4g}".split("e")[0].replace("-", "−")
            assert mantissa in walk, (name, value)
    width = unpacked(report.data["tensors"][here + "v"]).shape[2]
    b = unpacked(report.data["tensors"][here + "b"])[start["query"]][start["head"] * width :][:width]
    assert all(f"{value:.4g}".split("e")[0].replace("-", "−") in walk for value in b)
    assert "position bias p" in walk
    assert "p" in page.locator("#walk math").first.text_content()  # the formula adds what the table does
    assert "need JavaScript" in page.locator("#maps").inner_text()
    assert "Arrow keys" not in page.locator("#maps").inner_text()
    assert all(" → " in text for text in page.locator("[data-spark]").all_inner_texts())
    for panel in ("run", "curves", "health", "samples", "attribution", "gradcheck", "graph", "data-panel"):
        assert len(page.locator(f"#{panel}").inner_text()) > 100, panel
    assert page.said == []


def test_hostile_words_stay_text(hostile, look):
    page = look(hostile)
    assert page.said == []
    assert page.evaluate("document.querySelectorAll('img, iframe').length") == 0
    assert page.evaluate("document.scripts.length") == 2
    assert HOSTILE in page.locator("#choose-query").inner_text()
    assert HOSTILE in page.locator("#attribution").inner_text()
    steps_of(page)
    assert page.evaluate("document.querySelectorAll('img, b').length") == 0
    assert data_in(hostile)["schema"] == "minigrad.report/1"


def everything(page):
    """The page with all that can be unfolded."""
    page.focus("#stepper")
    go(page, "b", "m", "w")
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")


def test_no_id_stands_twice(report, look):
    for step in steps_of(look(report.path, "#step=0&matrix=1&whatif=1")):
        assert len(step["ids"]) > 40
        assert len(step["ids"]) == len(set(step["ids"])), step["key"]


def test_at_360_pixels_nothing_sticks_out(report, hostile, look):
    for path in (report.path, hostile):
        page = look(path, width=360)
        everything(page)
        for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "End", "d"):
            go(page, key)
            assert page.evaluate("document.documentElement.scrollWidth") == 360, key


def test_negative_distances_have_a_true_minus_and_cosines_are_no_percentages(report, look):
    page = look(report.path)
    page.focus("#stepper")
    go(page, "Home", *["ArrowRight"] * 3)  # the relevance of each key in turn
    told = ""
    for _ in report.data["tokens"][0]["keys"]:
        go(page, "ArrowDown")
        told += page.inner_text("#step")
    assert "distance −2" in told
    assert "distance -" not in told
    assert page.inner_text("#cosine figcaption").startswith("cosines: ")


def test_a_long_word_does_not_widen_the_page(report, look, tmp_path):
    text, url = report.path.read_text(encoding="utf-8"), f"https://example.org/{'a' * 134}"
    assert ">saw<" in text
    (tmp_path / "report.html").write_text(text.replace(">saw<", f">{url}<").replace('"saw"', f'"{url}"'), "utf-8")
    page = look(tmp_path / "report.html", width=390)
    everything(page)
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "End", "m"):
        go(page, key)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, key
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 1280


CONTRASTS = r"""(among) => {
  const dot = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    if (colour === "none") return [0, 0, 0, 0];
    dot.clearRect(0, 0, 1, 1);
    dot.fillStyle = colour;
    dot.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = dot.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => under.map((x, k) => top[k] * top[3] + x * (1 - top[3]));
  const linear = (x) => x / 255 <= 0.03928 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4;
  const light = (c) => c.map(linear).reduce((s, x, k) => s + x * [0.2126, 0.7152, 0.0722][k], 0);
  const colour = (node) => node instanceof SVGElement ? getComputedStyle(node).fill : getComputedStyle(node).color;
  const behind = (node) => {
    if (!(node instanceof SVGElement)) return getComputedStyle(node).backgroundColor;
    const box = node.parentElement && [...node.parentElement.children].find((x) => x.tagName === "rect" && x !== node);
    return box ? getComputedStyle(box).fill : "none";
  };
  const ground = (node) => {
    const stack = [];
    for (let one = node; one; one = one.parentElement) stack.push(parse(behind(one)));
    return stack.reverse().reduce((under, top) => over(top, under), parse("Canvas").slice(0, 3));
  };
  const found = [], seen = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, box = node.getBoundingClientRect();
    const said = walker.currentNode.textContent.trim(), hidden = !box.width || !box.height;
    if (!said || seen.has(node) || hidden || !node.matches(among) || node.closest("script, style, noscript")) continue;
    seen.add(node);
    const under = ground(node), own = over(parse(colour(node)), under);
    const [a, b] = [light(own), light(under)].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.tagName, said.slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""
SCHEMES = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "forced": {"forced_colors": "active"},
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_has_contrast(scheme, report, look):
    page = look(report.path, **SCHEMES[scheme])
    everything(page)
    found = page.evaluate(CONTRASTS, "*")
    assert len(found) > 500
    assert found[0][0] >= 4.5, found[:5]
    page.focus("#stepper")
    for key in ("Home", "End"):  # where buttons do nothing
        go(page, key)
        found = page.evaluate(CONTRASTS, "button")
        assert any("next" in said for _, _, said in found)
        assert found[0][0] >= 4.5, found[:3]
    pale = "color: #777; background: #888; forced-color-adjust: none"
    page.evaluate(f"document.querySelector('h1').style.cssText = '{pale}'")
    assert page.evaluate(CONTRASTS, "h1")[0][0] < 2  # what is pale is seen


def test_it_speaks_to_those_who_do_not_see_it(report, look):
    page = look(report.path)
    everything(page)
    assert page.evaluate("document.documentElement.lang") == "en"
    unnamed = page.evaluate("""() => {
      const kinds = "[role=img], [role=region], [role=group], [role=grid], nav, select, button, dialog, section";
      const named = (one) => one.getAttribute("aria-label") || one.labels?.length || one.querySelector("title") ||
        document.getElementById(one.getAttribute("aria-labelledby")) ||
        (one.tagName === "BUTTON" && one.innerText.trim());
      return [...document.querySelectorAll(kinds)].filter((one) => !named(one)).map((one) => one.outerHTML);
    }""")
    assert unnamed == []
    assert page.locator("#live").get_attribute("aria-live") == "polite"
    assert page.evaluate("""() => [...document.querySelectorAll(".scroll")].every(
      (one) => one.tabIndex === 0 || one.querySelector("[tabindex='0']"))""")
    levels = page.evaluate("""() => [...document.querySelectorAll("h1, h2, h3, h4")]
      .filter((one) => one.offsetParent).map((one) => Number(one.tagName[1]))""")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_nothing_moves_by_itself_where_that_is_not_wanted(report, look):
    page = look(report.path, reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.evaluate("document.getAnimations().length") == 0


def test_labels_of_charts_are_not_cut(report, look):
    for width in (1280, 360):
        page = look(report.path, width=width)
        everything(page)
        cut = page.evaluate("""() => [...document.querySelectorAll("section svg:not(.mg-graph) text")].filter((one) => {
          const a = one.getBoundingClientRect(), b = one.ownerSVGElement.getBoundingClientRect();
          return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
        }).map((one) => one.textContent)""")
        assert cut == []


def test_too_many_numbers_for_a_page_leave_out_what_is_least_needed(tagged, look, call, tmp_path, monkeypatch):
    copy = shutil.copytree(tagged, tmp_path / "run")
    sizes = {}
    for name, most in (("all", 10**6), ("centre", 25_000), ("none", 0)):
        for limit in ("FIRST", "BUDGET"):
            monkeypatch.setattr(kept, limit, most)
        assert call("report", copy).status == 0
        page = look(copy / "report.html", "#step=2")
        data = data_in(copy / "report.html")
        sizes[name] = len(data["walks"]), sum(one["whole"] for one in data["walks"])
        said = page.locator("#walk").inner_text()
        assert ("too many to be walked through on one page" in said) == (name == "none")
        assert "There is no self-attention" not in said
        assert ("Enter (or a double click) opens" in page.locator("#maps").inner_text()) == (name != "none")
        assert page.locator("#grids table").count() == 3
        assert page.said == []
    assert sizes["all"] == (8, 2)  # two layers before and after training, and of two more sequences
    assert sizes["centre"][0] > sizes["centre"][1] == 0
    assert sizes["none"] == (0, 0)


def test_a_model_without_attention_says_so(tagged, look, call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    named = ("--train", tagged.parent / "train.conllu", "--dim", 8, "--hidden", 8, "--epochs", 1, "--model", "fc")
    assert call("per-vector", *named, "--out", tmp_path / "run").status == 0
    page = look(tmp_path / "run" / "report.html")
    walk, maps = page.locator("#walk").inner_text(), page.locator("#maps").inner_text()
    assert "There is no self-attention to walk through" in walk
    assert "too many" not in walk
    assert "This model has no attention." in maps
    assert "Arrow keys" not in maps
    assert "The model has no attention to compare with." in page.locator("#attribution").inner_text()
    assert page.said == []
