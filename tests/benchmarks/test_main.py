"""python -m benchmarks: two implementations at the least sizes, in real processes, and what is written of them."""

import json
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as command
from benchmarks.machine import blas_name, cpu_name
from benchmarks.measure import ROOT
from benchmarks.tables import BEGIN, END

SMALLEST = ["--sizes=tiny", "--vectors=3", "--links=2", "--rounds=2", "--seconds=0", "--impl", "numpy", "minigrad"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A run of everything."""
    directory = tmp_path_factory.mktemp("benchmarks") / "new"
    command.main([*SMALLEST, "--out", str(directory)])
    return directory


def test_json(out):
    results = json.loads((out / "benchmarks.json").read_text())
    assert set(results) == {"date", "machine", "versions", "rounds", "seconds_of_a_turn", "tables"}
    assert set(results["machine"]) == {"cpu", "cores", "system", "blas", "limits", "load"}
    assert {"python", "numpy", "minigrad"} <= set(results["versions"])
    assert [(table["kind"], table["size"]) for table in results["tables"]] == [
        ("train", "tiny"),
        ("chain", "2"),
        ("attention", "3"),
        ("import", ""),
    ]
    for table in results["tables"]:
        assert [row["name"] for row in table["rows"]][:2] == ["numpy", "minigrad"]
        for row in table["rows"]:
            assert set(row) == {"name", "note", "ratio", "quartiles", "seconds", "peak_mb", "times"}
            assert not row["note"].startswith("WRONG")
            assert row["ratio"] > 0
            assert len(row["times"]) == 2


def test_chart(out):
    picture = ElementTree.parse(out / "benchmarks.svg").getroot()
    said = " ".join(picture.itertext())
    for title in ("train, tiny (16 x 8 x 16)", "chain, 2 links", "attention, 3 vectors", "import"):
        assert title in said


def test_readme_is_rewritten_between_its_markers(out, tmp_path):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "README.md"
    page.write_text(f"# before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):  # again: the same
        command.update_readme(out, tmp_path)
        text = page.read_text()
        assert text.startswith(f"# before\n{BEGIN}\nMeasured on 2")
        assert text.endswith(f"\n{END}\nafter\n")
        assert "| train, tiny (16 x 8 x 16) |" in text
        assert "old" not in text
    for name in ("benchmarks.json", "benchmarks.svg"):
        assert (tmp_path / "docs" / name).read_text() == (out / name).read_text()


def test_the_real_readme_has_its_markers():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1


def test_readme_without_results_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main(["--readme", "--out", str(tmp_path)])
    assert "run python -m benchmarks first" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["--impl tensorflow", "--rounds 0", "--sizes huge", "--vectors x", "--tasks"])
def test_a_wrong_option_is_an_error(wrong, capsys):
    with pytest.raises(SystemExit):
        command.main(wrong.split())
    assert "error: argument" in capsys.readouterr().err


def test_names_of_what_it_runs_on(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: Some CPU @ 2 GHz\n")
    assert cpu_name(file) == "Some CPU @ 2 GHz"
    assert cpu_name(tmp_path / "nowhere")
    pools = [
        {"user_api": "openmp", "internal_api": "openmp", "version": None},
        {"user_api": "blas", "internal_api": "openblas", "version": "0.3.30", "architecture": "Zen"},
    ]
    assert blas_name(pools) == "openblas 0.3.30 Zen"
    assert blas_name([]) == "unknown BLAS"
