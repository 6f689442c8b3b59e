"""The measured process: loads one artifact, runs it once at once, then serves commands on standard input.

Arguments: ENGINE ARTIFACT THREADS EXEC_TIME INPUT.npy...; EXEC_TIME is CLOCK_MONOTONIC in nanoseconds just before the
parent started this process. Answers are JSON, one object a line, on standard output; the first comes unasked:

    {"first": s, "loaded": s}   from the start of the process to the first output, and to a loaded artifact
    run SECONDS MAX             -> {"ns": [...]}: latencies of single calls, at least 3
    loop COUNT                  -> {"ns": total} of COUNT calls without a clock between them
    memory                      -> {"peak": bytes, "resident": bytes, "anonymous": bytes, "modules": [...]}
    check EXPECTED.npy          -> {"error": greatest error relative to the greatest magnitude expected}
    quit

What this module imports counts in the start, hence so little at the top.
"""

import sys
import time


def main() -> None:
    from bench import engines

    name, artifact, threads, started, *inputs = sys.argv[1:]
    engine = engines.get(name)
    call = engine.open_session(artifact, inputs, int(threads))
    loaded = time.monotonic_ns()
    result = call()
    first = time.monotonic_ns()

    import json

    def answer(**values: object) -> None:
        print(json.dumps(values), flush=True)

    origin = int(started)
    answer(first=(first - origin) / 1e9, loaded=(loaded - origin) / 1e9)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "run":
            answer(ns=measure(call, float(words[0]), int(words[1])))
        elif command == "loop":
            answer(ns=loop(call, int(words[0])))
        elif command == "memory":
            answer(**memory())
        elif command == "check":
            answer(error=compare(engine.to_numpy(result), words[0]))
        elif command == "quit":
            break
        else:
            raise ValueError(f"unknown command {command!r}")


def measure(call, seconds: float, most: int) -> list[int]:  # type: ignore[no-untyped-def]
    """Latencies in nanoseconds: calls until `seconds` have passed or there are `most`, but 3 at least."""
    clock = time.perf_counter_ns
    latencies: list[int] = []
    end = clock() + int(seconds * 1e9)
    while len(latencies) < 3 or (clock() < end and len(latencies) < most):
        began = clock()
        call()
        latencies.append(clock() - began)
    return latencies


def loop(call, count: int) -> int:  # type: ignore[no-untyped-def]
    """Nanoseconds for `count` calls."""
    began = time.perf_counter_ns()
    for _ in range(count):
        call()
    return time.perf_counter_ns() - began


def memory() -> dict[str, object]:
    """Peak resident set so far, resident set and its anonymous part now (bytes), and which known heavy modules were
    imported.
    """
    # VmHWM counts this program alone; getrusage's ru_maxrss starts at the parent's, inherited across fork and exec.
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    kilobytes = {key: int(fields[key].split()[0]) for key in ("VmHWM", "VmRSS", "RssAnon")}
    heavy = [name for name in ("torch", "numpy", "onnxruntime") if name in sys.modules]
    return {
        "peak": kilobytes["VmHWM"] * 1024,
        "resident": kilobytes["VmRSS"] * 1024,
        "anonymous": kilobytes["RssAnon"] * 1024,
        "modules": heavy,
    }


def compare(outputs: list, expected_path: str) -> float:  # type: ignore[type-arg]
    """Greatest absolute difference over the greatest magnitude expected; infinite for a wrong shape or a NaN. Results
    of random models, whose expected values are all NaN, have no error where they are finite.
    """
    import numpy as np

    expected = np.load(expected_path)
    if len(outputs) != 1 or outputs[0].shape != expected.shape:
        return float("inf")
    if np.isnan(expected).all():
        return 0.0 if np.isfinite(outputs[0]).all() else float("inf")
    error = float(np.abs(outputs[0].astype(np.float64) - expected).max() / np.abs(expected).max())
    return float("inf") if np.isnan(error) else error


if __name__ == "__main__":
    main()
