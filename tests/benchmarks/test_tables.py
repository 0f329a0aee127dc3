"""What is said of results: made-up figures, whose tables and sentences are known."""

import pytest

from benchmarks.measure import LIMIT, Row, Table
from benchmarks.tables import BEGIN, END, as_text, between_markers, chart_rows, draw, losses, readme_section


def row(name, ratio, peak=1.0, note=""):
    return Row(name, note, ratio, (ratio, ratio), ratio / 100, peak, [ratio / 100])


TRAIN = Table(
    "train",
    "large",
    [
        row("numpy", 1.0, 50.0),
        row("minigrad", 0.875, 42.0),
        row("minigrad_compiled", 0.8125, 61.0),
        row("torch_sdpa", 0.75, 42.5, "noisy: 0.70 to 0.90"),
        Row("jax", "jax is not installed"),
        Row("mygrad", "WRONG: a loss is 3, not 2"),
        row(LIMIT, 0.6875, None),
    ],
)
CHAIN = Table(
    "chain", "2000", [row("torch", 1.0, 7.0), row("minigrad", 0.5, 2.0), Row("minigrad_compiled", "has no op_chain")]
)
IMPORT = Table("import", "", [row("numpy", 1.0, None), row("minigrad", 1.125, None)])
RESULTS = {
    "date": "2026-11-29",
    "machine": {
        "cpu": "Some CPU",
        "cores": 2,
        "system": "Linux x86_64",
        "blas": "openblas 0.3",
        "limits": {"OMP_NUM_THREADS": "1"},
    },
    "versions": {"python": "3.11.2", "numpy": "2.4.6"},
    "rounds": 11,
    "tables": [table.as_dict() for table in (TRAIN, CHAIN, IMPORT)],
}


def test_text_says_what_was_left_out_and_prints_no_ratio_of_what_is_wrong():
    lines = as_text(TRAIN).splitlines()
    assert lines[0] == "train, large (8 x 256 x 512)"
    assert lines[1].split() == ["numpy", "10.000", "ms", "1.00", "x", "peak", "50.0", "MB"]
    assert lines[4].endswith("noisy: 0.70 to 0.90")
    assert lines[5].split(maxsplit=1) == ["jax", "jax is not installed"]
    assert lines[6].split(maxsplit=1) == ["mygrad", "WRONG: a loss is 3, not 2"]


def test_chart_shows_what_is_wrong_but_not_what_is_missing():
    rows = {(r.size, r.name): r.ratio for r in chart_rows([TRAIN, CHAIN])}
    assert rows["train, large (8 x 256 x 512)", "mygrad"] is None
    assert rows["train, large (8 x 256 x 512)", "minigrad"] == 0.875
    assert "jax" not in {name for _, name in rows}
    assert ("chain, 2000 links", "minigrad_compiled") not in rows
    assert "relative to hand-written NumPy" in draw([TRAIN])
    assert "relative to torch" in draw([CHAIN])
    assert "relative to the first of each group" in draw([TRAIN, CHAIN])


def test_losses_are_those_of_the_better_variant_against_the_best_peer():
    tables = [TRAIN, CHAIN, IMPORT]
    said = losses(tables, lambda r: r.ratio, "is slower", ".2f")
    assert "train, large (8 x 256 x 512) (0.81; torch_sdpa 0.75)" in said
    assert "import (1.12; numpy 1.00)" in said
    assert "chain" not in said
    assert LIMIT not in said
    assert losses([CHAIN], lambda r: r.ratio, "is slower", ".2f") == "minigrad is slower nowhere here."
    assert losses(tables, lambda r: r.peak_mb, "takes more", ".0f", 1.0) == "minigrad takes more nowhere here."


def test_readme_section():
    section = readme_section(RESULTS, "docs/a.svg", "docs/a.json")
    assert "Measured on 2026-11-29 on Some CPU, 2 cores, Linux x86_64, OMP_NUM_THREADS=1, openblas 0.3" in section
    assert "with python 3.11.2, numpy 2.4.6." in section
    assert "the first of each group" in section
    time, memory = (part for part in section.split("\n\n") if part.startswith("|"))
    assert time.splitlines() == [
        f"| | minigrad | minigrad_compiled | numpy | torch_sdpa | torch | {LIMIT} |",
        "|---|---|---|---|---|---|---|",
        "| train, large (8 x 256 x 512) | 0.88 | 0.81 | 1.00 | **~0.75** |  | *0.69* |",
        "| chain, 2000 links | **0.50** |  |  |  | 1.00 |  |",
        "| import | 1.12 |  | **1.00** |  |  |  |",
    ]
    assert memory.splitlines()[2] == "| train, large (8 x 256 x 512) | **42** | 61 | 50 | 42 |  |"
    assert "import" not in memory
    assert "docs/a.svg" in section
    assert "docs/a.json" in section


def test_what_is_wrong_is_said_in_the_table():
    other = Table("train", "tiny", [row("numpy", 1.0), row("mygrad", 2.5)])
    section = readme_section({**RESULTS, "tables": [t.as_dict() for t in (TRAIN, other)]}, "a", "b")
    assert "| WRONG |" in section


@pytest.mark.parametrize("page", ["", BEGIN, f"{END} {BEGIN}", f"{BEGIN} {END} {END}"])
def test_a_page_without_its_markers_is_an_error(page):
    with pytest.raises(ValueError, match="the page must have"):
        between_markers(page, "x")
