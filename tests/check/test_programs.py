"""gradcheck on random programs: right ones pass, and a wrong op among right ones is named."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.check.programs import check_programs, random_program

pytestmark = pytest.mark.filterwarnings("ignore")  # values of random programs may overflow on the way


def test_right_programs_never_fail():
    failed = check_programs(range(100), mg.gradcheck)
    assert not failed, "\n\n".join(f"{program.source}{result}" for program, result in failed)


def test_a_program_is_reproducible_and_runs():
    program, again = random_program(7), random_program(7)
    assert program.source == again.source
    assert 3 <= len(program.source.splitlines()) - 2 <= 12
    assert all(np.isfinite(y.data).all() for y in program.function()(*map(mg.tensor, program.inputs)))


@pytest.mark.parametrize("seed", range(20))
def test_a_wrong_op_planted_into_a_program_is_named(seed):
    cube = mg.op(lambda x: x**3).rule(x=lambda g, x: 1.5 * g * 3 * x**2)
    program = random_program(seed)
    lines = program.source.splitlines()
    lines[-1] = f"    t = planted(t2 + 0.5)\n    return t, {lines[-1].removeprefix('    return ')}"
    source = "\n".join(lines) + "\n"
    f = type(program)(f"{program.name} planted", source, program.inputs).function(planted=cube)
    result = mg.gradcheck(f, program.inputs, raise_exception=False)
    if any(i.connected for i in result.inputs) and not result:
        assert (result.culprit.op, result.diagnosis.kind) == (cube.name, "constant factor")
        assert result.culprit.source == "t = planted(t2 + 0.5)"
