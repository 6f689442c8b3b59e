"""How long builds take, by phase, against ONNX Runtime's export and first session.

    python -m bench.builds [--models mlp,bert] [--rounds 3] [-o build/bench/builds.json]

Each round builds each model in fresh processes, in turns: with ONNX Runtime, with aotpack and an empty build cache (the
first build on a machine), and with aotpack again in the same cache. Then `aotpack pack` puts new weights into the code
of an archive. Imports of torch and of the model are left out. Figures are medians; with aotpack's objects in the
package (docs/build_cache.md) the first build compiles generated code alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aotpack.building import objects
from bench.process import THIS, environment

MODELS = "mlp,dlrm,lstm,minilm,bert,gpt2,vit,resnet50,mobilenetv2,convnext,whisper-encoder,yolo"
PHASES = ("import", "capture", "passes", "lower", "compile", "pack", "check")

_PACKED = """
import sys
from pathlib import Path
from bench import models
from bench.codes import build_code
from aotpack.targets import Target
from safetensors.torch import save_file
name, folder = sys.argv[1], Path(sys.argv[2])
build_code(name, Target.host().name, folder / "code.aotpack")
module, _ = models.build(name)
save_file({n: v.detach().clone() for n, v in module.state_dict().items()}, folder / "new.safetensors")
"""


def build(engine: str, model: str, folder: Path, cache: Path) -> dict[str, Any]:
    """What bench.build tells of one build in a fresh process."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [str(THIS.python), "-m", "bench.build", engine, model, str(folder)]
    _run(command, cache)
    report: dict[str, Any] = json.loads((folder / "build.json").read_text())
    return report


def pack(model: str, folder: Path, cache: Path) -> float:
    """Seconds of the process that puts new weights into the code of an archive."""
    _run([str(THIS.python), "-c", _PACKED, model, str(folder)], cache)
    code, weights = str(folder / "code.aotpack"), str(folder / "new.safetensors")
    began = time.perf_counter()
    _run([str(THIS.python), "-m", "aotpack.cli.app", "pack", code, "--weights", weights, "-o", f"{code}.new"], cache)
    return time.perf_counter() - began


def _run(command: list[str], cache: Path) -> None:
    env = environment(len(os.sched_getaffinity(0)), cache)
    done = subprocess.run(command, cwd=THIS.root, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:5])} failed:\n{done.stderr[-2000:]}")


def measure(model: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Seconds by what was built: medians, and those of the phases of the first build."""
    peer, first, again = [], [], []
    for _ in range(rounds):
        cache = folder / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        peer.append(build("onnxruntime", model, folder / "onnxruntime", cache)["seconds"])
        first.append(build("aotpack", model, folder / "aotpack", cache))
        again.append(build("aotpack", model, folder / "aotpack", cache)["seconds"])
    middle = sorted(first, key=lambda report: report["seconds"])[len(first) // 2]
    result = {
        "onnxruntime_s": statistics.median(peer),
        "first_s": statistics.median(report["seconds"] for report in first),
        "phases_s": middle["phases"],
        "again_s": statistics.median(again),
        "new_weights_s": pack(model, folder, folder / "cache"),
    }
    return result | {"ratio": result["first_s"] / result["onnxruntime_s"]}


def table(results: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of a Markdown table."""
    heads = ["s", "ONNX Runtime", "first build", "ratio", *PHASES, "second build", "new weights"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for model, found in results.items():
        cells = [found["onnxruntime_s"], found["first_s"], found["ratio"]]
        cells += [found["phases_s"].get(phase, 0.0) for phase in PHASES]
        cells += [found["again_s"], found["new_weights_s"]]
        lines.append(f"| {model} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.builds", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=MODELS, help="comma-separated; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="builds of each kind (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/builds.json"), help="%(default)s")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    packaged = (objects.packaged() / "compiler.json").is_file()
    for model in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            results[model] = measure(model, options.rounds, Path(folder))
        print("\n".join(table(results)[-1:] if len(results) > 1 else table(results)), flush=True)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({"objects_in_package": packaged, "models": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
