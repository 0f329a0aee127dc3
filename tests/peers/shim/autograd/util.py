"""autograd's older gradient check."""

from typing import Any

from .test_util import check_grads


def quick_grad_check(f: Any, x: Any, extra_args: tuple[Any, ...] = ()) -> None:
    check_grads(f, order=1)(x, *extra_args)
