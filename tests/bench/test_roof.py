import platform
import shutil
from pathlib import Path

import pytest

from bench import roof


@pytest.mark.parametrize(
    ("operators", "kind"),
    [
        (("aten.convolution", "aten.relu"), "convolution"),
        (("aten.relu", "aten.addmm"), "linear"),
        (("aten.linear", "aten.gelu"), "linear"),
        (("aten.scaled_dot_product_attention",), "attention"),
        (("aten.bmm",), "attention"),
        (("aten.native_layer_norm", "aten.add"), "normalization"),
        (("aten.add", "aten.mul"), roof.OTHER),
        # Names that begin or end like others.
        (("aten.mean",), "pooling"),
        (("aten.permute",), roof.OTHER),
        ((), roof.OTHER),
    ],
)
def test_class_of(operators: tuple[str, ...], kind: str) -> None:
    assert roof.class_of(operators) == kind


def test_shares_are_of_time_and_of_the_nearer_limit() -> None:
    kernels = [(("aten.addmm",), 1.0), (("aten.addmm",), 1.0), (("aten.convolution",), 1.0), (("aten.add",), 1.0)]
    found = roof.shares(kernels, {"linear": 10.0, "convolution": 50.0}, {"linear": 150.0}, peak=100.0, reads=100.0)
    assert found["linear"] == {"seconds": 2.0, "share": 0.5, "roof": 0.75}  # by its weights
    assert found["convolution"] == {"seconds": 1.0, "share": 0.25, "roof": 0.5}
    assert found[roof.OTHER] == {"seconds": 1.0, "share": 0.25, "roof": None}
    assert next(iter(found)) == "linear"


def test_work_counts_operations_and_weights() -> None:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(36, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(self.conv(x).flatten(1))[None, None]
            return torch.nn.functional.scaled_dot_product_attention(y, y, y)

    operations, weights = roof.work(Model(), (torch.randn(2, 3, 5, 5),))
    assert operations["convolution"] == 2 * 2 * 4 * 9 * 27
    assert operations["linear"] == 2 * 2 * 36 * 8
    assert operations["attention"] == 2 * (2 * 2 * 2 * 8)
    assert weights["linear"] == 4 * (36 * 8 + 8)


@pytest.mark.skipif(platform.machine() != "x86_64" or shutil.which("g++") is None, reason="needs g++ on x86-64")
def test_the_roof_is_measured() -> None:
    flags = Path("/proc/cpuinfo").read_text()
    if "avx2" not in flags:
        pytest.skip("needs AVX2")
    found = roof.measured_roof(1)
    assert 1e9 < found["fp32"] < 1e13
    assert 1e8 < found["reads"] < 1e13
    assert (found["int8"] > found["fp32"]) == ("avx512_vnni" in flags)
