"""Optimism: how low the values inside a node's cell might be."""

from __future__ import annotations

import math

from mixtree.errors import InputError


def default_rho(sources: int) -> float:
    """(√3/2)^(1/(K−1)): the decay of bisect's cells per height.

    >>> round(default_rho(3), 4)
    0.9306
    """
    return float((math.sqrt(3) / 2) ** (1 / max(1, sources - 1)))


class Optimism:
    """The paper's bound on the values in a node's cell: v − c·ν·ρ^h.

    Parameters
    ----------
    nu
        ν, smoothness: how much values in the whole simplex may differ.
    rho
        ρ, decay of that per height, strictly between 0 and 1.
    optimism
        c.

    References
    ----------
    Faw et al., "Corollary: smoothness of G in a cell", with ν2 and ρ2.

    Examples
    --------
    >>> Optimism(0.5, 0.5).bound(1.0, 1)
    0.5
    """

    def __init__(self, nu: float, rho: float, *, optimism: float = 2.0) -> None:
        check_smoothness(nu, rho, optimism)
        self._scale, self._rho = optimism * nu, rho

    def bound(self, value: float, height: int) -> float:
        """How low the values in the cell of a node of this value and height might be."""
        return value - self.margin(height)

    def margin(self, height: int) -> float:
        """How far the bounds of this height lie below their values."""
        return self._scale * self._rho**height


def check_smoothness(nu: float, rho: float, optimism: float) -> None:
    """Refuse ν, ρ, c that are no smoothness constants.

    Parameters
    ----------
    nu
        ν, finite and at least 0.
    rho
        ρ, strictly between 0 and 1.
    optimism
        c, finite and at least 0.

    Raises
    ------
    InputError
        With what is wrong.
    """
    if not (math.isfinite(nu) and nu >= 0):
        raise InputError(f"nu must be a finite number of at least 0, or 'auto'; got {nu}")
    if not 0 < rho < 1:
        raise InputError(f"rho must lie strictly between 0 and 1; got {rho}")
    if not (math.isfinite(optimism) and optimism >= 0):
        raise InputError(f"optimism (c) must be a finite number of at least 0; got {optimism}")
    if not math.isfinite(optimism * nu):
        raise InputError(f"optimism (c) times nu overflows; got {optimism} × {nu}")
