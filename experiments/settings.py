"""Every hyperparameter, in a dataclass a scenario; the command line mirrors their fields."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, get_type_hints


class UsageError(ValueError):
    """Something the user asked for that cannot be done: told in one line, exit status 2."""


def option(default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    """A dataclass field that the command line offers."""
    return field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all scenarios have in common: the shape of the model, and how it is trained."""

    MODELS: ClassVar[tuple[str, ...]] = ("attention", "fc", "window")

    seed: int = option(0, "seed of the data, the initial weights and the training")
    model: str = option("attention", "what stands between input and labels", MODELS)
    dim: int = option(64, "width of the vectors")
    blocks: int = option(2, "how often self-attention and FC alternate")
    heads: int = option(4, "heads of a self-attention")
    hidden: int = option(128, "width of the FC's middle layer")
    positions: str = option("relative", "how a place is known", ("none", "sinusoidal", "learned", "relative"))
    position_scale: float = option(1.0, "what sinusoidal positions are multiplied with")
    neighbours: int = option(2, "the window model's neighbours on each side")
    dropout: float = option(0.1, "probability of dropping an element, in [0, 1)")
    epochs: int = option(10, "passes over the training data, at most")
    patience: int = option(1000, "stop after so many epochs without a better score on dev")
    batch_size: int = option(32, "sequences in a batch, at most")
    max_tokens: int = option(100_000, "vectors in a batch, padding included, at most")
    lr: float = option(2e-3, "peak learning rate")
    warmup: float = option(0.1, "fraction of all steps in which the rate rises to its peak")
    decay: str = option("linear", "how the rate falls afterwards", ("constant", "linear", "cosine", "inverse_sqrt"))
    beta2: float = option(0.98, "Adam's average of squared gradients, in [0, 1)")
    weight_decay: float = option(0.01, "AdamW's decay of matrices (embeddings and vectors are left alone)")
    clip: float = option(1.0, "longest gradient of a step")
    label_smoothing: float = option(0.1, "share of a label's weight that is spread over all labels")
    threads: int = option(1, "threads of matrix products; more pay for wide models on an otherwise idle machine")
    average: float = option(0.0, "decay of the averaged weights that are kept; 0: no averaging")

    def __post_init__(self) -> None:
        """UsageError for a value of the wrong type or out of bounds, wherever it came from."""
        types = get_type_hints(type(self))
        for f in fields(self):
            _check(f.name, getattr(self, f.name), types[f.name], f.metadata.get("choices") or ())
        if self.model == "attention" and self.dim % self.heads:
            raise UsageError(f"--heads {self.heads} does not divide --dim {self.dim}")


_BELOW_ONE = math.nextafter(1, 0)
_BOUNDS: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(("epochs", "patience", "batch_size", "max_tokens"), (1, 10**9)),
    "threads": (1, 1024),
    **dict.fromkeys(("dim", "hidden"), (1, 10**5)),
    **dict.fromkeys(("blocks", "heads", "beam"), (1, 1000)),
    **dict.fromkeys(("neighbours",), (0, 1000)),
    **dict.fromkeys(("frames", "time_mask", "feature_mask"), (0, 10**6)),
    **dict.fromkeys(("seed",), (0, 2**63 - 1)),
    **dict.fromkeys(("dropout", "word_dropout", "beta2", "average", "warp"), (0, _BELOW_ONE)),
    **dict.fromkeys(("label_smoothing", "warmup"), (0, 1)),
    **dict.fromkeys(("lr", "clip"), (1e-12, 1e12)),
    **dict.fromkeys(("weight_decay", "position_scale"), (0, 1e12)),
}


def _check(name: str, value: Any, kind: type, choices: tuple[str, ...]) -> None:
    shown = "--" + name.replace("_", "-")
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise UsageError(f"{shown} must be of type {kind.__name__}, and {value!r} was given")
    if choices and value not in choices:
        raise UsageError(f"{shown} is one of {', '.join(choices)}, and {value!r} was given")
    if kind in (int, float):
        low, high = _BOUNDS[name]
        if not low <= value <= high:
            span = f"at least {low} and below 1" if high == _BELOW_ONE else f"from {low} to {high}"
            raise UsageError(f"{shown} must be {span}, and {value} was given")


@dataclass(frozen=True, kw_only=True)
class PerVectorSettings(Settings):
    """A label for every vector."""

    word_dropout: float = option(0.1, "probability of hiding a word's own row in training: its looks are learned then")


@dataclass(frozen=True, kw_only=True)
class SingleSettings(Settings):
    """One label for the whole set."""

    standardise: str = option("global", "whose mean and deviation frames are measured by", ("global", "utterance"))
    frames: int = option(0, "resample every utterance to so many frames; 0: leave them")
    warp: float = option(0.0, "how unevenly, at random, time passes when resampling in training, in [0, 1)")
    deltas: bool = option(False, "beside each frame how it changes")
    time_mask: int = option(0, "hide up to so many successive frames in training")
    feature_mask: int = option(0, "hide up to so many neighbouring features in training")


@dataclass(frozen=True, kw_only=True)
class Seq2SeqSettings(Settings):
    """The model decides how many labels come out."""

    MODELS: ClassVar[tuple[str, ...]] = ("attention",)

    model: str = option("attention", "what encodes and decodes", MODELS)
    positions: str = option("sinusoidal", "how a place is known", ("sinusoidal", "learned"))
    beam: int = option(1, "hypotheses of the beam search; 1 is greedy")


def add_options(parser: argparse.ArgumentParser, shown: Settings) -> None:
    """An option for every field; those not given on the command line are absent from the result.

    shown: the defaults that the help tells, those for generated data.
    """
    said = "defaults depend on the kind of data: these are for generated data, config.json shows those of a run"
    group = parser.add_argument_group("hyperparameters", said)
    types = get_type_hints(type(shown))
    for f in fields(shown):
        kind, default = types[f.name], getattr(shown, f.name)
        group.add_argument(
            "--" + f.name.replace("_", "-"),
            type=_truth if kind is bool else kind,
            default=argparse.SUPPRESS,
            metavar="true|false" if kind is bool else "|".join(f.metadata["choices"]) or kind.__name__.upper(),
            help=f"{f.metadata['help']} (default: {str(default).lower() if kind is bool else default})",
        )


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
        raise argparse.ArgumentTypeError(f"true or false was expected, not {text!r}")
    return text.lower() in ("true", "yes", "1")
