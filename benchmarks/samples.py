"""How much faster are per-sample gradients from one pass than from a loop of single-sample passes?

    python -m benchmarks.samples                a batch of 32 sentences through the tagger, in float32 and float64

Both are timed in turn, and the fastest run of each counts. Their largest difference is printed too.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from experiments.data import batching
from experiments.per_vector import EMBEDDED, PerVectorTask
from minigrad import nn, study
from minigrad.threads import set_num_threads

Gradients = dict[str, np.ndarray]


def tagger_and_batch(size: int, seed: int) -> tuple[nn.Module, Callable[..., mg.Tensor], Any, Any]:
    """The tagger with its first weights, a loss with the batch's total, and a batch of sentences of similar length."""
    mg.seed(seed)
    task = PerVectorTask.embedded(EMBEDDED)
    lengths = [len(ids) for ids in task._ids]
    first = len(lengths) // 2
    chosen = np.argsort(lengths, kind="stable")[first : first + size]
    ids, valid = batching.pad([task._ids[i] for i in chosen])
    labels, _ = batching.pad([task._labels[i] for i in chosen])
    mask = valid & (labels >= 0)
    total = np.count_nonzero(mask)

    def loss_fn(model: nn.Module, x: Any, y: Any) -> mg.Tensor:
        return nn.cross_entropy(model(x["ids"], valid=x["valid"]), y["labels"], mask=y["mask"], total=total)

    return task.labeller.model.eval(), loss_fn, {"ids": ids, "valid": valid}, {"labels": labels, "mask": mask}


def one_by_one(model: nn.Module, loss_fn: Callable[..., mg.Tensor], x: Any, y: Any) -> Gradients:
    """A forward and a backward pass for each sample."""
    batch = len(x["ids"])
    parameters = dict(model.named_parameters())
    gradients = {name: np.zeros((batch, *p.shape), p.dtype) for name, p in parameters.items()}
    for i in range(batch):
        for p in parameters.values():
            p.grad = None
        one = [{name: array[i : i + 1] for name, array in arrays.items()} for arrays in (x, y)]
        loss_fn(model, *one).backward()
        for name, p in parameters.items():
            if p.grad is not None:
                gradients[name][i] = p.grad
    return gradients


def in_dtype(model: nn.Module, dtype: Any) -> nn.Module:
    """A copy of a model with its parameters in another dtype."""
    other = copy.deepcopy(model)
    for p in other.parameters():
        nn.Parameter.__init__(p, p.data.astype(dtype))
    return other


def fastest(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Milliseconds of the fastest of some runs of each, which take turns."""
    best = dict.fromkeys(runs, np.inf)
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=32, help="sentences in the batch")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    float32, loss_fn, x, y = tagger_and_batch(args.batch, args.seed)
    print(f"ids {x['ids'].shape}, {sum(p.size for p in float32.parameters()):,} parameters")
    set_num_threads(1)
    for dtype in (np.float32, np.float64):
        model = in_dtype(float32, dtype)
        runs: dict[str, Callable[[], Gradients]] = {
            "one pass": partial(study.per_sample_grads, model, loss_fn, x, y),
            "loop": partial(one_by_one, model, loss_fn, x, y),
        }
        found, expected = runs["one pass"](), runs["loop"]()
        difference = max(float(np.abs(found[name] - expected[name]).max()) for name in expected)
        best = fastest(runs, args.repeats)
        print(
            f"{np.dtype(dtype)}: one pass {best['one pass']:.1f} ms, loop {best['loop']:.1f} ms, "
            f"{best['loop'] / best['one pass']:.1f} times as fast; they differ by {difference:.1e}"
        )


if __name__ == "__main__":
    main()
