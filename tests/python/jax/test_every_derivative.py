"""Both modes and two orders of every op of the example libraries that has a gradient, by JAX's checker."""

from __future__ import annotations

from typing import Any

import derivatives
import jax
import jax.numpy as jnp
import opsmith
import pytest
from derivatives import Case
from jax.test_util import check_grads

CASES = derivatives.cases()


def test_no_op_is_left_out() -> None:
    assert not derivatives.left_out({case.id for case in CASES})
    assert len(CASES) == 44
    assert {case.id for case in CASES} >= (derivatives.ONE_ORDER | derivatives.TWO_ORDERS).keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_of_two_orders(case: Case) -> None:
    def of(*values: Any) -> list[Any]:
        outputs = case.sample.call(*jax.tree.map(jnp.asarray, case.filled(values)))
        return [y for y in outputs if jnp.issubdtype(y.dtype, jnp.floating)]

    def check(order: int, *modes: str) -> None:
        single = case.id in derivatives.FLOAT32
        tolerance = 1e-2 if single else 1e-3
        step = 3e-3 if single else None
        check_grads(of, case.at, order=order, modes=modes, atol=tolerance, rtol=tolerance, eps=step)

    if case.id in derivatives.ONE_ORDER:
        check(1, "rev")
        for order, modes in ((1, "fwd"), (2, "rev")):
            with pytest.raises(opsmith.UnimplementedError, match=derivatives.ONE_ORDER[case.id]):
                check(order, modes)
    elif case.id in derivatives.TWO_ORDERS:
        check(1, "fwd")
        check(2, "rev")
        with pytest.raises(opsmith.UnimplementedError, match=derivatives.TWO_ORDERS[case.id]):
            check(2, "fwd")
    else:
        check(2, "fwd", "rev")
