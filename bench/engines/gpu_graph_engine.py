"""PyTorch on the GPU as serving code has it without a compiler: the module in a CUDA graph, inputs copied into it."""

from __future__ import annotations

from typing import Any

from bench.engines import gpu, gpu_eager_engine

TITLE = "eager + graph"
# The saved module is the same one.
SHARES_BUILD = "gpu_eager"
STARTS_TOGETHER = True
missing, build, to_numpy = gpu.missing, gpu_eager_engine.build, gpu.to_numpy


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import torch

    # The file is one that this bench wrote a moment ago; it holds a whole module, hence weights_only=False.
    module = torch.load(artifact, weights_only=False, mmap=True).to("cuda")
    given = gpu.arguments(inputs, next(module.parameters()).dtype)
    held = [x.clone() for x in given]
    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(3):
            module(*held)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        result = module(*held)

    def replay(*args: Any) -> Any:
        for mine, theirs in zip(held, args, strict=True):
            mine.copy_(theirs)
        graph.replay()
        return result.clone()

    return gpu.waiting(replay, given)
