"""The training loop: what is kept, when it stops, and what a checkpoint has to hold."""

from dataclasses import replace

import numpy as np
import pytest

import minigrad as mg
from experiments.data import english, speakers
from experiments.per_vector import PerVectorTask
from experiments.settings import PerVectorSettings, SingleSettings
from experiments.single import SingleTask
from experiments.training import Training
from minigrad import nn, saving

SMALL = PerVectorSettings(dim=8, heads=2, blocks=1, hidden=8, epochs=4, lr=1e-2, dropout=0.2, word_dropout=0.2)
DATA = dict(zip(("train", "dev", "test"), english.splits(0, train=60, dev=30, test=10)))


def new(settings=SMALL, data=DATA):
    mg.seed(settings.seed)
    task = PerVectorTask(settings, data)
    mg.seed(settings.seed)
    return Training(task)


def nothing(training):
    pass


def run(settings=SMALL, data=DATA):
    training = new(settings, data)
    training.run(nothing)
    return training


def equal(a, b):
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def without_seconds(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


def test_history_has_a_row_an_epoch_and_the_loss_falls():
    history = run().history
    assert [row["epoch"] for row in history] == [1, 2, 3, 4]
    assert history[-1]["loss"] < 0.9 * history[0]["loss"]
    assert history[-1]["lr"] == 0  # linear decay is at its end
    assert set(history[0]) == {"epoch", "loss", "lr", "accuracy", "accuracy_ambiguous", "accuracy_unknown", "seconds"}


def test_save_is_called_after_every_epoch():
    epochs = []
    new().run(lambda training: epochs.append(training.epoch))
    assert epochs == [1, 2, 3, 4]


@pytest.mark.parametrize("average", [0.0, 0.8])
def test_the_best_weights_are_kept(average):
    """After the third epoch the weights are lost, and the last epoch is not the best."""
    training = new(replace(SMALL, lr=0.05, epochs=5, decay="constant", average=average))

    def lose(training):
        if training.epoch == 3:
            with mg.no_grad():
                for p in training.task.model.parameters():
                    p *= 0.0
            for kept in training.average.average if average else []:
                kept *= 0.0

    training.run(lose)
    scores = [row["accuracy"] for row in training.history]
    assert training.best_epoch == 1 + int(np.argmax(scores))
    assert training.best_epoch <= 3, scores
    assert equal(training.task.model.state_dict(), training.best_weights)
    training.task.model.eval()
    assert training.task.evaluate("dev")["accuracy"] == max(scores)


def test_without_dev_the_last_weights_are_kept():
    training = new(data={"train": DATA["train"]})
    last = {}
    training.run(lambda training: last.update(training.task.model.state_dict()))
    assert training.best_epoch == 4
    assert equal(training.task.model.state_dict(), last)
    assert set(training.history[0]) == {"epoch", "loss", "lr", "seconds"}


def test_it_stops_when_dev_does_not_get_better():
    training = run(replace(SMALL, lr=1e-12, epochs=50, patience=3))
    assert (training.epoch, training.best_epoch) == (4, 1)


def test_averaged_weights_are_scored_and_kept():
    training = new(replace(SMALL, average=0.9, epochs=1))
    own = {}
    training.run(lambda training: own.update(training.task.model.state_dict()))
    kept = training.task.model.state_dict()
    assert not equal(kept, own)
    averages = zip(training.task.model.named_parameters(), training.average.average, strict=True)
    assert all(np.array_equal(kept[name], average) for (name, _), average in averages)
    training.task.model.eval()
    assert training.task.evaluate("dev")["accuracy"] == training.history[0]["accuracy"]


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_checkpoint_holds_all_that_changes(average, stop, tmp_path):
    """Through the disk into a new task whose weights and generators are others."""
    settings = replace(SMALL, average=average)
    whole, part = run(settings), new(settings)

    def stop_there(training):
        if training.epoch == stop:
            raise KeyboardInterrupt

    if stop:
        with pytest.raises(KeyboardInterrupt):
            part.run(stop_there)
    saving.save_checkpoint(tmp_path / "checkpoint.npz", part.state_dict())
    resumed = new(settings)
    mg.seed(99)
    resumed.rng = np.random.default_rng(99)
    for p in resumed.task.model.parameters():
        with mg.no_grad():
            p += 1.0
    resumed.load_state_dict(saving.load_checkpoint(tmp_path / "checkpoint.npz"))
    assert resumed.epoch == stop
    resumed.run(nothing)
    assert equal(resumed.task.model.state_dict(), whole.task.model.state_dict())
    assert without_seconds(resumed.history) == without_seconds(whole.history)
    assert resumed.best_epoch == whole.best_epoch


def test_frames_are_distorted_from_a_generator_that_is_resumed(tmp_path):
    """The same for sequences of frames, with all that is done to them at random."""
    settings = SingleSettings(
        dim=8, heads=2, blocks=1, hidden=8, epochs=3, frames=8, warp=0.5, deltas=True, time_mask=3, feature_mask=2
    )
    data = dict(zip(("train", "dev"), speakers.splits(0, train=3, dev=2, test=1)))

    def make():
        mg.seed(0)
        return Training(SingleTask(settings, data))

    whole, states = make(), []
    whole.run(lambda training: states.append(training.state_dict()))
    resumed = make()
    resumed.load_state_dict(states[0])
    resumed.run(nothing)
    assert equal(resumed.task.model.state_dict(), whole.task.model.state_dict())


def test_one_seed_gives_the_same_bits_and_another_others():
    assert equal(run().task.model.state_dict(), run().task.model.state_dict())
    assert not equal(run().task.model.state_dict(), run(replace(SMALL, seed=1)).task.model.state_dict())


def test_a_rate_far_too_high_breaks_down_by_name():
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(FloatingPointError, match="NaN or infinite"):
        run(replace(SMALL, lr=1e12, warmup=0.0))


def test_matrices_decay_and_embeddings_biases_and_norms_do_not():
    training = new(replace(SMALL, weight_decay=0.5))
    decayed, spared = training.optimizer.groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.5, 0.0)
    names = {id(p): name for name, p in training.task.model.named_parameters()}
    tables = {id(m.weight) for m in training.task.model.modules() if isinstance(m, nn.Embedding)}
    assert tables
    assert {names[id(p)] for p in spared["params"]} >= {names[i] for i in tables}
    assert all(p.ndim >= 2 and id(p) not in tables for p in decayed["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_an_epoch_of_one_batch_has_no_room_for_a_warm_up_but_trains():
    training = run(replace(SMALL, epochs=1, batch_size=1000, warmup=1.0))
    assert training.epoch == 1
    assert np.isfinite(training.history[0]["loss"])
