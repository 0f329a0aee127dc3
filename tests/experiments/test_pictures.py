"""Pictures whose names can be read, whatever fonts there are."""

import logging
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from experiments import pictures
from experiments.pictures import readable
from experiments.task import Drawn
from models import AttentionStack, FCStack

pytest.importorskip("matplotlib")


def attention(heads=2):
    return AttentionStack(8, blocks=1, heads=heads, hidden=8, positions="none").eval()


def example(names, part=""):
    frames = np.random.default_rng(0).normal(size=(1, len(names), 8)).astype(np.float32)
    return Drawn((frames,), {}, names, names, part)


def texts(path):
    """The texts of an SVG, as a reader finds them."""
    return [element.text for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def size_of(path):
    """Width and height of a PNG."""
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def test_plain_names_stay_as_they_are():
    names = ["I", "saw", "naïve", "(end)", "$5", "∀", "слово"]
    assert readable(names) == (["DejaVu Sans"], [names])


def test_spaces_are_seen_and_long_names_cut():
    _, [names] = readable([" ", "  ", "a b", "https://example.org/a/long/way"])
    assert names == ["␣", "␣␣", "a b", "https://example.o…"]


@pytest.mark.parametrize(
    ("name", "spelt"),
    [("千", "1000"), ("百", "100"), ("零", "0"), ("五", "5"), ("中", "U+4E2D"), ("二百", "2 100"), ("a中", "aU+4E2D")],
)
def test_without_a_font_numerals_are_numbers_and_others_codes(name, spelt, monkeypatch):
    from matplotlib.font_manager import fontManager

    only = [font for font in fontManager.ttflist if font.name.startswith(("DejaVu", "STIX", "cm"))]
    monkeypatch.setattr(fontManager, "ttflist", only)
    assert readable([name])[1] == [[spelt]]


def test_a_font_that_has_the_character_is_taken(monkeypatch):
    from matplotlib.font_manager import fontManager

    fonts = [f for f in fontManager.ttflist if f.name in ("DejaVu Sans", "STIXGeneral")]
    monkeypatch.setattr(fontManager, "ttflist", fonts)
    first, other = (
        frozenset.union(*(pictures._glyphs(f.fname) for f in fonts if f.name == name and f.style == "normal"))
        for name in ("DejaVu Sans", "STIXGeneral")
    )
    character = min(c for c in other - first if c.isalpha())
    assert readable([f"a{character}"]) == (["DejaVu Sans", "STIXGeneral"], [[f"a{character}"]])


def test_the_last_resort_of_boxes_is_no_font():
    families, [[name]] = readable(["\U000f0000"])  # private use: no font of letters has it
    assert "Last Resort" not in " ".join(families)
    assert name == "U+F0000"


@pytest.mark.parametrize("names", [["千", "百", "中", "🙂"], ["$x$", "a_b", "\\frac", "<&>"], ["\n", "\x01", " ", "א"]])
def test_any_names_are_drawn_without_a_warning(names, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        pictures.draw_attention(tmp_path, attention(), example(names))  # a warning would be an error here
    assert caplog.records == []
    drawn = texts(tmp_path / "attention.svg")
    for name in readable(names)[1][0]:
        assert drawn.count(name) == 4, name  # on two sides of two heads


def test_the_map_has_a_panel_a_head_and_says_what_it_is(tmp_path):
    pictures.draw_attention(tmp_path, attention(heads=4), example(["I", "saw", "a", "saw"]))
    drawn = texts(tmp_path / "attention.svg")
    assert [text for text in drawn if text.startswith("head ")] == ["head 1", "head 2", "head 3", "head 4"]
    assert "who attends to whom: blocks.0.attention" in drawn
    assert drawn.count("saw") == 16
    width, height = size_of(tmp_path / "attention.png")
    assert width > 800
    assert height > 200


@pytest.mark.parametrize("name", ["一千", "saw", " "])
def test_it_says_when_names_are_written_otherwise(name, tmp_path, monkeypatch):
    from matplotlib.font_manager import fontManager

    only = [font for font in fontManager.ttflist if font.name.startswith(("DejaVu", "STIX", "cm"))]
    monkeypatch.setattr(fontManager, "ttflist", only)
    pictures.draw_attention(tmp_path, attention(heads=1), example([name, "b"]))
    drawn = texts(tmp_path / "attention.svg")
    assert ("1 1000" in drawn) == (pictures.SUBSTITUTED in drawn) == (name == "一千")


def test_of_many_names_some_are_left_out(tmp_path):
    pictures.draw_attention(tmp_path, attention(heads=1), example([f"w{i}" for i in range(100)]))
    drawn = [text for text in texts(tmp_path / "attention.svg") if re.fullmatch(r"w\d+", text)]
    assert drawn[:3] == ["w0", "w5", "w10"]
    assert len(drawn) == 40


def test_it_says_that_a_part_is_a_part(tmp_path):
    pictures.draw_attention(tmp_path, attention(heads=1), example(["a", "b"], "the first 2 of 9,000 vectors"))
    assert "(the first 2 of 9,000 vectors)" in texts(tmp_path / "attention.svg")


def test_one_vector_is_enough(tmp_path):
    pictures.draw_attention(tmp_path, attention(heads=1), example(["alone"]))
    assert (tmp_path / "attention.png").exists()


def test_a_model_without_attention_has_no_map(tmp_path):
    class Plain(FCStack):
        def forward(self, x):
            return super().forward(x, valid=None)

    pictures.draw_attention(tmp_path, Plain((8, 8)), example(["a"]))
    assert list(tmp_path.iterdir()) == []


def test_curves_show_loss_and_score(tmp_path):
    rows = [{"epoch": 1, "loss": 2.0, "exact_match": None}, {"epoch": 2, "loss": 1.0, "exact_match": 0.5}]
    pictures.draw_curves(tmp_path, rows, "exact_match")
    assert {"mean loss on train", "exact match on dev"} <= set(texts(tmp_path / "curves.svg"))
    assert size_of(tmp_path / "curves.png")[0] > 1000


def test_without_dev_there_is_one_curve(tmp_path):
    pictures.draw_curves(tmp_path, [{"epoch": 1, "loss": 2.0}], "accuracy")
    assert not any("on dev" in (text or "") for text in texts(tmp_path / "curves.svg"))


def test_equal_runs_give_equal_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        pictures.draw_curves(tmp_path / name, [{"epoch": 1, "loss": 2.0}], "accuracy")
    for suffix in ("svg", "png"):
        assert (tmp_path / "a" / f"curves.{suffix}").read_bytes() == (tmp_path / "b" / f"curves.{suffix}").read_bytes()


def test_drawing_leaves_matplotlib_as_it_was(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    pictures.draw_curves(tmp_path, [{"epoch": 1, "loss": 2.0}], "accuracy")
    assert dict(matplotlib.rcParams) == before
