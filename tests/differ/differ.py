"""Random calls of all ops, computed by all frameworks and by the engine, and compared bit by bit.

`opsmith.testing` makes the calls from the definitions, and shrinks one that fails. Each framework has a
process of its own, which goes on where it died, and each call is NumPy's too: with the outputs of another
framework, its gradients of first order with those that the engine makes. `graphs` are random graphs, fused
and not, and `bodies` random bodies, built just in time.

    python tests/differ/differ.py --minutes 5 --seed 1 [FRAMEWORK...]
    python tests/differ/differ.py --replay tests/differ/CASE.json

`OPSMITH_LIB_DIR` is the folder of the built libraries. What fails is written into a file beside this one,
which the tests run
again from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

# Sums of parts depend on how many there are.
os.environ.setdefault("OPSMITH_NUM_THREADS", "2")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import opsmith
import opsmith.testing
from opsmith._definition import Op
from opsmith._library import definition_of

HERE = Path(__file__).parent
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", HERE.parents[1] / "target" / "release"))
NAMES = [
    "opsmith_ops",
    "activations",
    "distances",
    "example",
    "gelu",
    "kernels",
    "lltm",
    "masks",
    "median_pool",
    "pairwise",
    "reductions",
    "zero_out",
]
SIZES = [(1, 4), (1, 4), (0, 2), (1, 20), (1, 70)]
CASES = 40
"""So many calls of an op are made in a row."""

SILENCE = 600.0
"""So many seconds a framework may say nothing."""

sys.path.insert(0, str(HERE))
from frameworks import FRAMEWORKS, Framework, flat, is_close, is_float, laid_out, mapped, weights  # noqa: E402


def loaded(name: str) -> Any:
    """A library by its file's name."""
    return opsmith.load(LIBRARIES / f"lib{name}.so")


def difference(ours: list[Any], theirs: list[Any], close: bool) -> str | None:
    """In what way outputs differ, if they do: in their bits, but for those of NaN."""
    if len(ours) != len(theirs):
        return f"{len(theirs)} outputs instead of {len(ours)}"
    for at, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape:
            return f"output {at} has shape {b.shape} instead of {a.shape}"
        if close:
            if not is_close(a, b):
                return f"output {at} is {b.ravel()[:8]}, and {a.ravel()[:8]} in NumPy"
            continue
        if a.dtype.kind in "OSU" and b.dtype.kind in "OSU":
            equal = np.array_equal(a, b)
        elif a.dtype != b.dtype:
            return f"output {at} is {b.dtype} instead of {a.dtype}"
        else:
            size = a.dtype.itemsize
            bits = (np.frombuffer(x.tobytes(), "u1").reshape(-1, size) for x in (a, b))
            same = np.equal(*bits).all(1).reshape(a.shape)
            equal = bool(np.all(same | ((a != a) & (b != b))))
        if not equal:
            return f"output {at} is {b.ravel()[:8]} instead of {a.ravel()[:8]}"
    return None


class Comparison:
    """One op, computed by a framework and by NumPy."""

    def __init__(self, name: str, library: Any, op: Op, counts: Counter[str]) -> None:
        self.name, self.op, self.counts = name, op, counts
        self.framework: Framework = framework(name)
        self.function = getattr(library, op.snake_name)
        self.native = library._opsmith_loaded.native.op(op.index)
        self.found = ""

    def outputs(self, *inputs: Any, **attrs: Any) -> Any:
        """NumPy's outputs, for `opsmith.testing`; others that no op has where the caller's differ."""
        given = {attr.name: attrs[attr.python_name] for attr in self.op.call_attrs}
        outputs = self.native(*inputs, attrs=given)
        laid = self.native(*mapped(inputs, laid_out), attrs=given) if self.framework.lays_out else outputs
        found = self.compare(laid, inputs, attrs)
        for one, other in zip(flat(outputs), flat(laid), strict=True) if found is None else ():
            if not is_close(np.asarray(one), np.asarray(other)):
                found = f"{other.ravel()[:8]} of other strides instead of {one.ravel()[:8]}"
        if found is None:
            return outputs
        self.found = found
        odd = [np.zeros((1,) * 9) for _ in self.op.outputs]
        wrong = [[one] if arg.is_list else one for one, arg in zip(odd, self.op.outputs, strict=True)]
        return wrong[0] if len(wrong) == 1 else tuple(wrong)

    def compare(self, outputs: Any, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> str | None:
        """In what way the caller computes something else, if it does."""
        if not self.framework.takes(inputs):
            return None
        rows = [outputs] if len(self.op.outputs) == 1 else list(outputs)
        ours = [np.asarray(each) for at in self.op.returned for each in flat([rows[at]])]
        try:
            theirs = self.framework.call(self.function, self.op, inputs, attrs)
        except (opsmith.UnimplementedError, NotImplementedError):
            return None
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if theirs is None:
            return None
        self.counts["calls"] += 1
        return difference(ours, theirs, self.name == "formulas") or self._gradients(inputs, attrs, ours)

    def _gradients(self, inputs: tuple[Any, ...], attrs: dict[str, Any], outputs: list[Any]) -> str | None:
        floats = [y for y in outputs if is_float(y)]
        if self.op.gradient is None or not floats or not any(map(is_float, flat(inputs))):
            return None
        seeds = weights(floats)
        try:
            ours = framework("engine").gradients(self.function, inputs, attrs, seeds)
        except opsmith.Error:
            # The engine says so of an op whose gradient it cannot take, such as of a list.
            return None
        try:
            theirs = self.framework.gradients(self.function, inputs, attrs, seeds)
        except (opsmith.UnimplementedError, NotImplementedError):
            return None
        except Exception as error:
            return f"gradient: {type(error).__name__}: {error}"
        if theirs is None or self.name == "engine":
            return None
        self.counts["gradients"] += 1
        xs = [x for x in flat(inputs) if is_float(x)]
        pairs = [
            [np.zeros_like(x) if each is None else each for each, x in zip(found, xs, strict=True)]
            for found in (ours, theirs)
        ]
        found = difference(*pairs, close=True)
        return None if found is None else f"gradient: {found}"


_frameworks: dict[str, Framework] = {}


def framework(name: str) -> Framework:
    """The caller of this name, started once."""
    if name not in _frameworks:
        _frameworks[name] = FRAMEWORKS[name]()
    return _frameworks[name]


def kept(case: dict[str, Any]) -> Path:
    """Write a failing case into a file of its own."""
    text = json.dumps(case, indent=1, ensure_ascii=False) + "\n"
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    what = f"{case['framework']}-{case.get('op', 'graph')}-{digest}"
    path = HERE / f"{what}.json"
    path.write_text(text, encoding="utf-8")
    return path


def arguments_of(line: str, function: str) -> str:
    """The arguments of the call in a line of Python that `opsmith.testing` gave."""
    start = line.index(f".{function}(") + len(function) + 2
    return line[start : line.rindex("))")]


def tried(name: str, file: str, library: Any, op: Op, seed: int, counts: Counter[str], **about: str) -> int:
    """Some calls of an op; gives whether one failed, which is kept then."""
    comparison = Comparison(name, library, op, counts)
    sizes = SIZES[seed % len(SIZES)]
    print(f"trying {file} {op.snake_name} {seed}", file=sys.stderr, flush=True)
    report = opsmith.testing.check(
        comparison.function,
        reference=comparison.outputs,
        properties=["reference"],
        seed=seed,
        cases=CASES,
        sizes=sizes,
        rtol=0,
        atol=0,
        raises=False,
    )
    for row in report.failures:
        case = {"framework": name, "library": file, "op": op.snake_name, **about}
        case |= {"call": arguments_of(row.python, op.snake_name) if row.python else "", "seed": seed}
        case["said"] = comparison.found or row.message
        print(f"WRONG {kept(case).name}: {op.snake_name}({case['call']}): {case['said']}", flush=True)
    return len(report.failures)


def is_tried(op: Op) -> bool:
    """Whether two calls of it are alike, and change nothing."""
    return not op.stateful and not any(arg.ref for arg in op.inputs) and bool(op.inputs)


def run(name: str, seconds: float, seed: int) -> int:
    """Calls in one framework, until the time is over; gives how many failed."""
    counts: Counter[str] = Counter()
    end, wrong, rounds = time.monotonic() + seconds, 0, 0
    if name == "graphs":
        import graphs

        wrong = graphs.run(end, seed, counts, kept)
    elif name == "bodies":
        import bodies

        while time.monotonic() < end:
            file, library, source = bodies.library(seed + rounds)
            for op in filter(is_tried, definition_of(library).ops):
                for of in ("engine", "torch") if time.monotonic() < end else ():
                    wrong += tried(of, file, library, op, seed + rounds, counts, source=source)
            wrong += bodies.formulas(library, seed + rounds, counts)
            rounds += 1
    else:
        framework(name)
        files = NAMES[:1] if name == "formulas" else NAMES
        # Some take long to start.
        end = time.monotonic() + seconds
        pairs = [(file, op) for file in files for op in definition_of(loaded(file)).ops if is_tried(op)]
        while time.monotonic() < end:
            random.Random(f"{seed} {rounds}").shuffle(pairs)
            for file, op in pairs:
                if time.monotonic() >= end:
                    break
                wrong += tried(name, file, loaded(file), op, seed * 1000 + rounds, counts)
            rounds += 1
    told = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"{name}: {told} compared in {seconds:.0f} s from seed {seed}, {wrong} wrong", flush=True)
    return wrong


def replayed(case: dict[str, Any]) -> str | None:
    """What is wrong in a case that failed once; nothing where it is as it should be."""
    if case["framework"] == "graphs":
        import graphs

        return graphs.replayed(case)
    if "source" in case:
        from opsmith import jit

        library = jit.load_inline(case["library"], case["source"])
    else:
        library = loaded(case["library"])
    op = next(op for op in definition_of(library).ops if op.snake_name == case["op"])
    import ml_dtypes

    scope = {"np": np, "ml_dtypes": ml_dtypes}
    inputs, given = eval(f"(lambda *inputs, **given: (inputs, given))({case['call']})", scope)
    attrs = {attr.python_name: given.get(attr.python_name, attr.default) for attr in op.call_attrs}
    comparison = Comparison(case["framework"], library, op, Counter())
    try:
        comparison.outputs(*inputs, **attrs)
    except opsmith.Error as error:
        return f"NumPy: {error}"
    return comparison.found or None


def watched(name: str, seconds: float, seed: int) -> subprocess.Popen[str]:
    """The process of a framework."""
    command = [sys.executable, __file__, "--only", name, "--minutes", str(seconds / 60), "--seed", str(seed)]
    log = open(HERE / f".{name}.log", "w", encoding="utf-8")  # noqa: SIM115
    return subprocess.Popen(command, stdout=None, stderr=log, text=True)


def all_frameworks(names: list[str], minutes: float, seed: int) -> int:
    """The processes of some frameworks, two at a time, each for its share of the time; gives in how many
    something was wrong."""
    seconds = minutes * 60 * 2 / max(len(names), 2)
    waiting = [(name, seconds, seed) for name in names]
    running: dict[str, tuple[subprocess.Popen[str], float, int]] = {}
    wrong = 0
    while waiting or running:
        while waiting and len(running) < 2:
            name, share, own = waiting.pop(0)
            running[name] = (watched(name, share, own), time.monotonic() + share, own)
        time.sleep(0.2)
        for name, (process, end, own) in list(running.items()):
            if process.poll() is None and time.monotonic() > end + SILENCE:
                process.send_signal(signal.SIGABRT)
                process.wait()
            if (status := process.poll()) is None:
                continue
            del running[name]
            wrong += status != 0
            if status not in (0, 1):
                log = (HERE / f".{name}.log").read_text(encoding="utf-8", errors="replace")
                last = [line for line in log.splitlines() if line.startswith("trying ")][-1:]
                print(f"WRONG {name} ended with status {status}, {last}:\n{log[-3000:]}", flush=True)
                # It goes on with other calls.
                if (left := end - time.monotonic()) > 5:
                    waiting.append((name, left, own + 1))
            else:
                (HERE / f".{name}.log").unlink()
    return wrong


def main() -> int:
    """Run the command line; the status says whether something was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="this framework, in this process")
    parser.add_argument("--replay", type=Path, help="a file with a case")
    parser.add_argument("frameworks", nargs="*", help="all, unless some are named")
    options = parser.parse_args()
    if options.replay:
        found = replayed(json.loads(options.replay.read_text(encoding="utf-8")))
        print("as it should be" if found is None else found)
        return found is not None
    if options.only:
        return run(options.only, options.minutes * 60, options.seed) > 0
    wrong = all_frameworks(
        options.frameworks or [*FRAMEWORKS, "graphs", "bodies"], options.minutes, options.seed
    )
    print(f"{wrong} processes with something wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
