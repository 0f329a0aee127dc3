"""CoNLL-U, TSV and what all text files share: what is read, and the line that is blamed."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import pytest

from experiments.data.conllu import Tagged, read_conllu
from experiments.data.errors import DataError
from experiments.data.files import read, read_texts, sha256, tokenise
from experiments.data.tsv import Pair, read_tsv


def row(number, form, tag):
    return "\t".join([number, form, "_", tag, *"______"])


SENTENCES = "\n".join(
    [
        "# text = I don't",
        row("1", "I", "PRON"),
        row("2-3", "don't", "_"),
        row("2", "do", "AUX"),
        row("3", "n't", "PART"),
        row("3.1", "go", "VERB"),
        "",
        "# two",
        "",
        row("1", "saw", "NOUN"),
    ]
)


def test_conllu_skips_comments_ranges_and_empty_nodes(write):
    expected = [Tagged(("I", "do", "n't"), ("PRON", "AUX", "PART")), Tagged(("saw",), ("NOUN",))]
    assert read_conllu(write("a.conllu", SENTENCES)) == expected
    assert read_conllu(write("b.conllu", SENTENCES + "\n\n")) == expected
    assert read_conllu(write("c.conllu", "\ufeff" + SENTENCES.replace("\n", "\r\n"))) == expected
    assert read_conllu(write("d.conllu", SENTENCES.replace("\n", "\r"))) == expected


def test_conllu_keeps_a_form_with_spaces_and_odd_separators(write):
    sentence = read_conllu(write("a.conllu", row("1", "20 000\u2028x", "NUM")))[0]
    assert sentence.tokens == ("20 000\u2028x",)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (SENTENCES.replace("\t_\t_\t_\t_\t_\t_", "\t_", 1), 2, "expected 10 tab-separated columns, got 5"),
        (SENTENCES.replace("\tAUX\t", "\t_\t"), 4, "'do' has no UPOS tag in column 4"),
        (SENTENCES.replace("\tAUX\t", "\t\t"), 4, "'do' has no UPOS tag in column 4"),
        (SENTENCES.replace("\tn't\t", "\t\t"), 5, "form in column 2 is empty"),
        (
            row("1", "I", "PRON") + "\n" + row("1", "I", "PRON"),
            2,
            "expected word id 2 in column 1, got '1'; is the empty",
        ),
        (row("1", "I", "PRON") + "\n" + row("3", "I", "PRON"), 2, "expected word id 2 in column 1, got '3'"),
        (row("x", "I", "PRON"), 1, "expected word id 1 in column 1, got 'x'"),
        ("# only a comment\n", None, "has no sentence"),
    ],
)
def test_conllu_blames_the_line(write, content, line, words):
    path = write("bad.conllu", content)
    with pytest.raises(DataError, match=words) as caught:
        read_conllu(path)
    assert (caught.value.line, caught.value.path) == (line, str(path))
    assert str(caught.value).startswith(f"{path}:{line}: " if line else f"{path}: ")


def test_conllu_reads_the_english_treebank(shared):
    sentences = read_conllu(shared("ud_english_ewt/en_ewt-ud-dev.conllu"))
    assert (len(sentences), sum(len(s.tokens) for s in sentences)) == (2002, 25148)
    assert len({tag for s in sentences for tag in s.tags}) == 17
    assert sentences[0] == Tagged(
        ("From", "the", "AP", "comes", "this", "story", ":"),
        ("ADP", "DET", "PROPN", "VERB", "DET", "NOUN", "PUNCT"),
    )


def test_tsv_keeps_characters_as_they_stand(write):
    # One precomposed letter, one with a combining accent, and a space that is a character of the source.
    path = write("a.tsv", "a c\u00f2\te\u0301 t\u0283\n\n\u3042\u3044\ta\u0320  i \r\n")
    assert read_tsv(path) == [
        Pair(("a", " ", "c", "\u00f2"), ("e\u0301", "t\u0283")),
        Pair(("\u3042", "\u3044"), ("a\u0320", "i")),
    ]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("ab\ta b\nab a b\n", 2, "expected 2 tab-separated columns"),
        ("ab\ta\tb\n", 1, "got 3"),
        ("ab\ta\n\t b\n", 2, "source before the tab is empty"),
        ("ab\t \n", 1, "target after the tab is empty"),
    ],
)
def test_tsv_blames_the_line(write, content, line, words):
    with pytest.raises(DataError, match=words) as caught:
        read_tsv(write("bad.tsv", content))
    assert caught.value.line == line


def test_tsv_reads_every_shared_language(shared):
    folder = shared("g2p/fre_train.tsv").parent
    counts = {path.name: len(read_tsv(path)) for path in folder.glob("*.tsv")}
    assert set(counts.values()) == {3600, 450}
    assert len(counts) == 30
    assert read_tsv(folder / "fre_train.tsv")[1] == Pair(tuple("abby"), ("a", "b", "i"))


@pytest.mark.parametrize("name", ["x.conllu", "x.ts", "x.npz", "x.tsv", "X.TSV"])
def test_whatever_the_suffix_a_missing_empty_or_binary_file_is_one_clear_error(tmp_path, write, name):
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / name, "digit" if name.endswith("npz") else None)
    for content, words in [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"ok\n\xff\xfe\x00\x81", r"not (UTF-8|a NumPy)"),
    ]:
        path = write(name, content)
        with pytest.raises(DataError, match=words) as caught:
            read(path, "digit" if name.endswith("npz") else None)
        assert caught.value.line == (2 if b"ok" in content and "npz" not in name else None)
        assert "\n" not in str(caught.value)


def test_text_with_nul_bytes_is_rubbish_too(write):
    with pytest.raises(DataError, match="NUL byte") as caught:
        read_tsv(write("a.tsv", b"a\tb\na\0\tb\n"))
    assert caught.value.line == 2


def test_a_directory_an_unknown_suffix_and_a_needless_label(tmp_path, write):
    with pytest.raises(DataError, match="is a directory; name a file"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"unknown suffix '\.csv'; expected one of \.conllu \.ts \.npz \.tsv"):
        read(write("a.csv", "x"))
    with pytest.raises(DataError, match=r"a \.tsv file holds its labels: leave it out"):
        read(write("a.tsv", "a\tb"), "digit")


def test_read_goes_by_suffix(write):
    assert read(write("a.tsv", "a\tb")) == [Pair(("a",), ("b",))]
    assert read(write("A.CONLLU", row("1", "I", "PRON"))) == [Tagged(("I",), ("PRON",))]


def test_sha256_is_that_of_the_bytes(write, shared):
    assert sha256(write("a", b"abc")) == hashlib.sha256(b"abc").hexdigest()
    sums = dict(line.split()[::-1] for line in shared("SHA256SUMS").read_text().splitlines())
    name = next(name for name in sums if name.endswith("fre_dev.tsv"))
    assert sha256(shared("g2p/fre_dev.tsv")) == sums[name]


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(DataError(Path("a.tsv"), "is odd", 3)))
    assert (str(error), error.path, error.reason, error.line) == ("a.tsv:3: is odd", "a.tsv", "is odd", 3)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("I saw a saw", "I saw a saw"),
        ("I saw a saw.", "I saw a saw ."),
        ("They don't fish; it's late!", "They do n't fish ; it 's late !"),
        ("We can\u2019t, they\u2019re 3.50", "We ca n\u2019t , they \u2019re 3.50"),
        ("(http://a.b/c), U.S. ... well-known", "( http://a.b/c ) , U.S. ... well - known"),
        ("  ", ""),
    ],
)
def test_tokenise(text, tokens):
    assert tokenise(text) == tuple(tokens.split())


def test_tokenise_mostly_agrees_with_the_treebank(shared):
    path = shared("ud_english_ewt/en_ewt-ud-dev.conllu")
    texts = [line[9:] for line in path.read_text("utf-8").splitlines() if line.startswith("# text = ")]
    same = [tokenise(text) == sentence.tokens for text, sentence in zip(texts, read_conllu(path), strict=True)]
    assert sum(same) / len(same) > 0.8


def test_texts_are_lines(write):
    assert read_texts(write("a.txt", "I saw a saw\n\n we can fish \n")) == ["I saw a saw", " we can fish "]
