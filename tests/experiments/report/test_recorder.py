"""The recorder notes what happens, changes nothing of it, and counts its own time."""

import time
from dataclasses import replace

import numpy as np
import pytest

import minigrad as mg
from experiments.data import english, numerals
from experiments.per_vector import PerVectorTask
from experiments.report import examples
from experiments.report import recorder as module
from experiments.report.recorder import MEASURES, SCORES, Recorder
from experiments.seq2seq import Seq2SeqTask
from experiments.settings import PerVectorSettings, Seq2SeqSettings
from experiments.training import Training
from minigrad import saving

SMALL = PerVectorSettings(dim=8, heads=2, blocks=1, hidden=8, epochs=4, batch_size=8, lr=1e-2, dropout=0.2)
DATA = dict(zip(("train", "dev"), english.splits(0, train=60, dev=30, test=1)))


def new(path, settings=SMALL, recorded=True):
    mg.seed(settings.seed)
    task = PerVectorTask(settings, DATA)
    mg.seed(settings.seed)
    return Training(task, Recorder(task, path) if recorded else None)


def nothing(training):
    pass


def test_training_is_the_same_to_the_bit_with_and_without_it(tmp_path):
    states = []
    for recorded in (False, True):
        training = new(tmp_path, recorded=recorded)
        training.run(nothing)
        states.append(training.task.model.state_dict())
    without, recorded = states
    assert all(without[name].tobytes() == recorded[name].tobytes() for name in without)


def test_it_notes_steps_evenly_and_what_they_did(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "NOTED", 4)
    training = new(tmp_path)
    every = training.steps // 4
    names = [name for name, _ in training.task.model.named_parameters()]
    seen = []
    step = training.optimizer.step

    def watched():
        before = training.task.model.state_dict()
        gradients = [p.grad.copy() for p in training.task.model.parameters()]
        step()
        seen.append((before, gradients, training.task.model.state_dict()))

    training.optimizer.step = watched
    norms = []
    note = training.recorder.step
    training.recorder.step = lambda t, number, norm: (norms.append(norm), note(t, number, norm))
    training.run(nothing)
    r = training.recorder
    assert r.steps == list(range(0, training.steps, every))
    assert len(r.sizes) == len(r.steps)
    for number, sizes in zip(r.steps, r.sizes):
        before, gradients, after = seen[number]
        clipped = max(1.0, norms[number] / SMALL.clip)
        for i, name in enumerate(names):
            old = before[name].astype(float)
            size = np.linalg.norm(gradients[i].astype(float)) * clipped
            ratio = np.linalg.norm(after[name].astype(float) - old) / (np.linalg.norm(old) or np.inf)
            assert sizes.shape == (len(MEASURES), len(names))
            assert sizes[0, i] == pytest.approx(size, rel=1e-4, abs=1e-12), name
            assert sizes[1, i] == pytest.approx(ratio, rel=1e-3, abs=1e-9), name
    total = np.sqrt((np.array(r.sizes)[0, 0] ** 2).sum())
    assert total == pytest.approx(norms[0], rel=1e-4)  # before clipping


def test_what_is_not_finite_is_counted(tmp_path):
    training = new(tmp_path)
    parameters = training.task.model.parameters()
    training.optimizer.zero_grad()
    for p in parameters:
        p.grad = np.zeros(p.shape, p.dtype)
    bad = np.zeros(parameters[1].shape, np.float32)
    bad[:3] = np.nan, np.inf, -np.inf
    parameters[1].grad = bad
    with np.errstate(invalid="ignore"):
        training.recorder.step(training, 0, 1.0)
    assert training.recorder.broken == [0, 3, *[0] * (len(parameters) - 2)]


def test_scores_are_those_of_the_model_in_eval_mode(tmp_path):
    training = new(tmp_path)
    training.run(nothing)
    assert len(training.recorder.scores) == 4
    assert all(len(scores) == len(SCORES) for scores in training.recorder.scores)
    training = new(tmp_path, replace(SMALL, epochs=1))
    training.run(nothing)
    loss, accuracy, train_loss, train_accuracy = training.recorder.scores[0]
    labeller = training.task.labeller
    begun = saving.load_checkpoint(tmp_path / "initial.npz")
    for split, name, found in (("dev", "batch", accuracy), ("train", "training_batch", train_accuracy)):
        scored = [tuple(names[1:-1]) for names in begun[name]["keys"][:16]]
        sentences = [next(s for s in DATA[split] if s.tokens == tokens) for tokens in scored]
        said = labeller.label([s.tokens for s in sentences])
        right = [a == b for s, tags in zip(sentences, said) for a, b in zip(s.tags, tags)]
        assert found == pytest.approx(np.mean(right))
    assert 0 < train_loss < 5
    assert 0 < loss < 5


def test_the_batches_are_like_the_data_not_like_their_beginning():
    """The first pairs are zero, one, ... ninety-nine: what a model says of them is not what it says of the rest."""
    splits = dict(zip(("train", "dev"), numerals.splits(0, train=2000, dev=100, test=1)))
    task = Seq2SeqTask(Seq2SeqSettings(dim=8, heads=2, blocks=1, hidden=8), splits, words=True)
    for split in ("train", "dev"):
        found = examples.batch(task, split)
        assert found.keys == examples.batch(task, split).keys
        assert len(set(map(tuple, found.keys))) == len(found.keys) == examples.BATCH
        lengths = [len(pair.source) for pair in splits[split]]
        assert np.mean([len(words) for words in found.keys[:16]]) == pytest.approx(
            np.mean(lengths), abs=np.std(lengths)
        )
        assert {tuple(words) for words in found.keys} <= {pair.source for pair in splits[split]}


def test_attention_is_kept_between_the_first_and_the_last_epoch(tmp_path):
    training = new(tmp_path, replace(SMALL, epochs=16))
    training.run(nothing)
    kept = training.recorder.attention
    assert list(kept) == ["3", "6"]
    probes = saving.load_checkpoint(tmp_path / "initial.npz")["probes"]
    for seen in kept.values():
        for layers, probe in zip(seen, probes, strict=True):
            n = len(probe["queries"][0])
            assert list(layers) == ["body.blocks.0.attention"]
            assert layers["body.blocks.0.attention"].shape == (2, n, n)
            np.testing.assert_allclose(layers["body.blocks.0.attention"].sum(-1), 1, rtol=1e-5)


def test_its_state_goes_through_a_checkpoint(tmp_path):
    training = new(tmp_path)
    training.run(nothing)
    saving.save_checkpoint(tmp_path / "c.npz", training.state_dict())
    other = new(tmp_path)
    other.load_state_dict(saving.load_checkpoint(tmp_path / "c.npz"))
    a, b = training.recorder, other.recorder
    assert (a.steps, a.broken, a.scores) == (b.steps, b.broken, b.scores)
    assert all(np.array_equal(x, y) for x, y in zip(a.sizes, b.sizes, strict=True))
    assert b.seconds > a.seconds  # its own beginning is counted too


def test_its_time_is_counted(tmp_path, monkeypatch):
    training = new(tmp_path)
    slow = module._measure

    def slower(*args):
        time.sleep(0.002)
        return slow(*args)

    monkeypatch.setattr(module, "_measure", slower)
    before = training.recorder.seconds
    training.run(nothing)
    calls = len(training.recorder.steps) * len(training.task.model.parameters())
    assert training.recorder.seconds - before >= 0.002 * calls


def test_the_first_weights_and_the_examples_are_kept_once(tmp_path):
    training = new(tmp_path)
    first = training.task.model.state_dict()
    written = (tmp_path / "initial.npz").read_bytes()
    training.run(nothing)
    new(tmp_path, replace(SMALL, seed=1))  # as when a run is resumed: it is left alone
    assert (tmp_path / "initial.npz").read_bytes() == written
    begun = saving.load_checkpoint(tmp_path / "initial.npz")
    assert all(np.array_equal(begun["weights"][name], first[name]) for name in first)
    assert begun["labels"] == training.task.labeller.tags.decode(range(len(begun["labels"])))
    assert len(begun["batch"]["queries"]) == 30 - sum(
        any(tag not in training.task.labeller.tags for tag in s.tags) for s in DATA["dev"]
    )


@pytest.mark.slow
def test_of_the_default_run_it_takes_no_more_than_three_percent(call, tmp_path):
    assert call("per-vector", "--out", tmp_path / "run").status == 0
    spent = saving.load_checkpoint(tmp_path / "run" / "recording.npz")["seconds"]
    training = saving.load_checkpoint(tmp_path / "run" / "checkpoint.npz")["seconds"]
    assert spent <= 0.03 * training
