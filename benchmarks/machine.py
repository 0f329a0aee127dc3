"""What figures depend on: the machine, the versions, and who else is at work."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

import minigrad
from minigrad.threads import cores

PACKAGES = ("numpy", "torch", "jax", "jaxlib", "autograd", "mygrad")
LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def machine() -> dict[str, Any]:
    """Processor, cores that may be used, system, NumPy's BLAS, and limits on threads that the environment sets."""
    return {
        "cpu": cpu_name(Path("/proc/cpuinfo")),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "blas": blas_name(threadpool_info()),
        "limits": {name: os.environ[name] for name in LIMITS if name in os.environ},
        "load": load(),
    }


def cpu_name(cpuinfo: Path) -> str:
    """As Linux has it in /proc/cpuinfo; elsewhere as Python knows it."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def blas_name(pools: list[dict[str, Any]]) -> str:
    """The library that multiplies matrices, and for which processors it does so."""
    for pool in pools:
        if pool["user_api"] == "blas":
            return " ".join(filter(None, [pool["internal_api"], pool["version"], pool.get("architecture")]))
    return "unknown BLAS"


def load() -> float:
    """Processes that ran or waited during the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def versions() -> dict[str, str]:
    """Of Python, minigrad and the peers that are installed."""
    found = {"python": platform.python_version(), "minigrad": minigrad.__version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
