"""The README's example of a wrong rule, as it stands there.

>>> import numpy as np, minigrad as mg
>>> @mg.op
... def rms(x):                                     # the root mean square of every row
...     return np.sqrt(np.mean(x**2, -1, keepdims=True))
>>> _ = rms.rule(x=lambda g, x, y: g / y * x)       # ... and its gradient, in which something is missing
>>> def loss(x, w):
...     h = np.tanh(x @ w)
...     h = h / rms(h)
...     return (h * h[0]).sum()
>>> x, w = np.random.default_rng(0).standard_normal((2, 4, 4))
>>> result = mg.gradcheck(loss, (x, w[:, :3]), raise_exception=False)
>>> print(result.diagnosis)
constant factor: the gradient of x is 3 (3: axis 1 of x) times what it should be
>>> print(result.culprit.op, "in line", result.culprit.line, "of the function:", result.culprit.source)
rms in line 3 of the function: h = h / rms(h)
"""
