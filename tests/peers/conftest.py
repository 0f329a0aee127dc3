"""The shim is a package called autograd for the peer's tests only: nothing in it is collected here."""

collect_ignore = ["shim"]
