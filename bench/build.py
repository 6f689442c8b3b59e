"""Builds one model for one engine in this process, and says how long it took: the bench starts one for each build.

    python -m bench.build ENGINE MODEL DIRECTORY

ENGINE may be `reference`: then the inputs and eager's answer are written instead, as input_0.npy …, expected.npy.
Writes DIRECTORY/build.json: {"artifact", "seconds" (without the imports of torch and the model), "phases" (seconds by
name, of engines that tell), "bytes"}. ONNX Runtime's seconds are those of the export and of the first session.
"""

import json
import sys
import time
from pathlib import Path

from bench import engines
from bench.int8 import write_int8
from bench.precision import precision_of


def write_reference(model: str, directory: Path) -> None:
    import numpy as np
    import torch

    from bench import models

    module, args = models.build(model)
    for index, arg in enumerate(args):
        # numpy has no bfloat16.
        np.save(directory / f"input_{index}.npy", (arg.float() if arg.dtype == torch.bfloat16 else arg).numpy())
    args = tuple(arg.float() if arg.is_floating_point() else arg for arg in args)
    with torch.inference_mode():
        expected = module.float()(*args).numpy()
    if module.training:
        # Random: nothing to compare with.
        expected[...] = np.nan
    np.save(directory / "expected.npy", expected)


def build(engine: str, model: str, directory: Path) -> None:
    # What other engines import on their own account is theirs; torch and the model's definition are everybody's.
    from bench import models

    module, args = models.build(model)
    if precision_of(model) == "int8":
        # The same quantizer makes the file for every engine.
        module = write_int8(module, args, directory / "int8")
    present = set(directory.iterdir())
    chosen, phases = engines.get(engine), {}
    began = time.perf_counter()
    if hasattr(chosen, "timed_build"):
        artifact, phases = chosen.timed_build(module, args, directory)
    else:
        artifact = chosen.build(module, args, directory)
    seconds = time.perf_counter() - began
    made = [path for path in directory.iterdir() if path not in present and path.is_file()]
    size = sum(path.stat().st_size for path in made)
    report = {"artifact": str(artifact), "seconds": seconds, "phases": phases, "bytes": size}
    (directory / "build.json").write_text(json.dumps(report))


def main() -> None:
    engine, model, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if engine == "reference":
        write_reference(model, directory)
    else:
        build(engine, model, directory)


if __name__ == "__main__":
    main()
