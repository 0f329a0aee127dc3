"""What other frameworks' attributes of tensors are called here: the hint of an AttributeError."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

_CPU = "leave it out, all is computed on the CPU"
_CAST = "t.astype(numpy.float32), or another dtype"
_RECORD = "t.requires_grad = True, or mg.tensor(x, requires_grad=True); t.detach() is a constant with the same data"

_HABITS = {
    **dict.fromkeys(["cpu", "cuda", "device", "is_cuda", "pin_memory"], _CPU),
    **dict.fromkeys(["float", "double", "half", "bfloat16", "int", "long", "bool", "type", "type_as"], _CAST),
    "to": f"{_CAST}; there are no devices",
    **dict.fromkeys(["requires_grad_", "detach_"], _RECORD),
    **dict.fromkeys(["view", "view_as", "reshape_as"], "t.reshape(...)"),
    "permute": "t.transpose(...), with all axes",
    "t": "t.T",
    "adjoint": "t.conj().mT",
    "unsqueeze": "mg.expand_dims(t, axis), or t[:, None]",
    **dict.fromkeys(["expand", "expand_as", "broadcast_to"], "mg.broadcast_to(t, shape)"),
    "contiguous": "leave it out, strides do not matter",
    "clone": "t.copy(), which is recorded",
    **dict.fromkeys(["numel", "nelement"], "t.size, without brackets"),
    "dim": "t.ndim",
    **dict.fromkeys(["mm", "bmm", "mv"], "a @ b"),
    **dict.fromkeys(["add", "sub", "mul", "div", "neg", "pow"], "an operator: a + b, a - b, a * b, a / b, -a, a**b"),
    **dict.fromkeys(["eq", "ne", "lt", "le", "gt", "ge"], "an operator: a == b, a < b, ..."),
    "masked_fill": "mg.where(mask, value, t)",
    "masked_select": "t[mask]",
    "index_select": "mg.take(t, indices, axis)",
    "gather": "mg.take_along_axis(t, indices, axis)",
    **dict.fromkeys(["scatter", "index_fill", "index_copy"], "mg.index_put(t, index, value)"),
    "scatter_add": "mg.index_add(t, index, value)",
    "cat": "mg.concatenate([...], axis)",
    "chunk": "mg.split(t, n, axis)",
    "unbind": "list(t)",
    "topk": "mg.flip(mg.sort(t, axis), axis) and a slice",
    "inverse": "mg.linalg.inv(t)",
    **dict.fromkeys(["is_leaf", "grad_fn", "creator"], "study.calls([t]) shows how t was made"),
    "retains_grad": "t.retain_grad() asks for .grad",
    "value": "t.data, a read-only array",
    "zero_grad": "t.grad = None, or optimizer.zero_grad()",
}


_NAMELESS = ("getitem", "scale")  # ops that mg does not show


def hint(name: str, ops: Container[str]) -> str:
    """What to write instead of t.name; nothing where no habit is known. ops: the names that mg has."""
    if name in _HABITS:
        return _HABITS[name]
    if name.endswith("_") and not name.startswith("_"):
        return "nothing writes into a tensor but t += x, t[i] = x and the like; mg's functions return new ones"
    if name not in ops or name.startswith("_") or name in _NAMELESS:
        return ""
    homes = [""] if hasattr(np, name) else [home for home in ("linalg", "fft") if hasattr(getattr(np, home), name)]
    home = homes[0] + "." if homes and homes[0] else ""
    return f"mg.{home}{name}(t)"
