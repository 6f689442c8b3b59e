"""Archives for CPUs and GPUs, TF32, and torch in the same process."""

from __future__ import annotations

import numpy as np
import pytest

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.cli.arrays import golden_inputs
from aotpack.errors import UnsupportedTargetError
from tests.gpu.conftest import Built
from tests.gpu.gpus import CAPABILITIES, needs_gpu

pytestmark = needs_gpu

X = np.random.default_rng(0).standard_normal((33, 64), np.float32)


def test_one_archive_for_cpus_and_gpus(built: Built) -> None:
    path = built("everywhere")
    with ArchiveReader(path) as reader:
        targets = {module.target for variant in reader.manifest.entries[0].variants for module in variant.modules}
    assert targets == {"x86-64-v3", "cuda-sm_80", "cuda-sm_90"}
    near, far = aotpack.load(path), aotpack.load(path, device="cuda:0")
    assert near.target == "x86-64-v3"
    assert far.target == ("cuda-sm_90" if CAPABILITIES[0] == (9, 0) else "cuda-sm_80")
    np.testing.assert_allclose(far(X).numpy(), np.asarray(near(X)), rtol=0, atol=1e-5)
    with pytest.raises(UnsupportedTargetError, match=r"there is no cuda:7: the CUDA driver finds \d devices?, cuda:0"):
        aotpack.load(path, device="cuda:7")


def _errors(path: str) -> list[float]:
    """The greatest error of each result, relative to the greatest value in double precision."""
    torch = pytest.importorskip("torch")
    from tests.gpu.ways import ways

    torch.manual_seed(0)
    module, _, _ = ways()["tf32"].make()
    with ArchiveReader(path) as reader:
        (x,) = golden_inputs(reader, reader.manifest.entries[0].goldens[0])
    with torch.no_grad():
        expected = module.double()(torch.from_numpy(x).double())
    found = aotpack.load(path, device="cuda:0")(x)
    return [
        float(np.abs(value.numpy() - wanted.numpy()).max() / np.abs(wanted.numpy()).max())
        for value, wanted in zip(found, expected, strict=True)
    ]


def test_tf32_is_less_exact_where_it_is_asked_for(built: Built) -> None:
    single, tf32 = _errors(str(built("not-tf32"))), _errors(str(built("tf32")))
    print(f"greatest relative errors in full precision {single}, in TF32 {tf32}")
    assert max(single) < 5e-6
    assert all(1e-5 < error < 5e-3 for error in tf32)


def test_torch_first_then_aotpack_on_a_side_stream(built: Built) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch was built without CUDA")
    weight = torch.randn(512, 64, device="cuda") @ torch.randn(64, 64, device="cuda")
    near = aotpack.load(built("everywhere"))
    model = aotpack.load(built("everywhere"), device="cuda:0")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            kept = []
            for number in range(100):
                x = weight[: 1 + 5 * number].tanh() * (number + 1)
                kept.append((x, model(x) * 2))
                if number % 3 == 2:
                    kept.pop(0)
        for x, y in kept:
            expected = 2 * np.asarray(near(x.cpu().numpy()))
            np.testing.assert_allclose(y.cpu().numpy(), expected, rtol=1e-4, atol=1e-3)
