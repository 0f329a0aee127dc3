"""One small run with its report, and a browser to look at it; both made once."""

import base64
import json
import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.data import english


def write_conllu(path, sentences):
    rows = [
        "".join(f"{i}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n" for i, (word, tag) in enumerate(zip(s.tokens, s.tags), 1))
        for s in sentences
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


SHAPE = ("--dim", 16, "--heads", 2, "--blocks", 2, "--hidden", 16)
HOSTILE = "</script><img/src=x/onerror=alert(1)>"


def data_in(path):
    """The JSON of a report."""
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def unpacked(packed):
    kinds = {"float64": "<f8", "float32": "<f4", "int8": "<i1"}
    return np.frombuffer(base64.b64decode(packed["b64"]), kinds[packed["dtype"]]).reshape(packed["shape"])


@pytest.fixture(scope="session")
def tagged(call, tmp_path_factory):
    """The directory of a small tagger's run, which knows the words of "I saw a saw"."""
    folder = tmp_path_factory.mktemp("report")
    train, dev, _ = english.splits(0, train=300, dev=40, test=1)
    write_conllu(folder / "train.conllu", train)
    write_conllu(folder / "dev.conllu", dev)
    named = ("--train", folder / "train.conllu", "--dev", folder / "dev.conllu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        done = call("per-vector", *named, *SHAPE, "--epochs", 3, "--out", folder / "run")
    assert done.status == 0, done.err
    return folder / "run"


@pytest.fixture(scope="session")
def report(tagged):
    """Its report: the file, and its data."""
    path = tagged / "report.html"
    return SimpleNamespace(path=path, data=data_in(path))


@pytest.fixture(scope="session")
def hostile(call, tmp_path_factory):
    """The report of a run on sentences of which one word is an attempt to break out of the page."""
    folder = tmp_path_factory.mktemp("hostile")
    sentences = [
        english.Tagged(tuple(HOSTILE if word in ("saw", "I") else word for word in s.tokens), s.tags)
        for s in english.splits(1, train=60, dev=1, test=1)[0]
    ]
    short = english.Tagged((HOSTILE, "<b>&amp;</b>", HOSTILE), ("NOUN", "VERB", "NOUN"))
    write_conllu(folder / "train.conllu", [short, *sentences, short])
    named = ("--train", folder / "train.conllu", "--dev", folder / "train.conllu")
    shape = ("--dim", 8, "--heads", 2, "--blocks", 1, "--hidden", 8, "--epochs", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        done = call("per-vector", *named, *shape, "--out", folder / "run")
    assert done.status == 0, done.err
    return folder / "run" / "report.html"


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium of the system's own, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason='no Playwright: pip install "minigrad[browser]"')
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def look(chromium):
    """Opens a file in a page of its own: look(path, "#hash", width=360, color_scheme="dark", ...).

    What the page requested, and what it said on the console, are in page.requested and page.said.
    """
    contexts = []

    def open_page(path, fragment="", *, width=1280, height=900, **more):
        context = chromium.new_context(viewport={"width": width, "height": height}, **more)
        contexts.append(context)
        page = context.new_page()
        page.requested, page.said = [], []
        page.on("request", lambda request: page.requested.append(request.url))
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.goto(path.as_uri() + fragment)
        return page

    yield open_page
    for context in contexts:
        context.close()
