import math
from pathlib import Path
from typing import Any

import pytest

from bench import peers, report


def figures(p50: float, error: float = 1e-6, start: float = 0.1) -> dict[str, Any]:
    return {"p50_s": p50, "max_error": error, "start_s": start, "build_s": 2.0}


@pytest.fixture
def document() -> dict[str, Any]:
    return {
        "machine": {"cpu": "a processor", "cores": 2, "python": "3.11", "versions": {"torch": "2.13.0"}},
        "date": "2026-01-02",
        "settings": {"threads": 2, "tolerance": 1e-4},
        "models": {
            "mlp": {"onnxruntime": figures(4e-3), "openvino": figures(2e-3), "aotpack": figures(1e-3, start=0.02)},
            "bert-bf16": {
                "eager": figures(1e-3) | {"max_error": 1e-2, "tolerance": 3e-2},
                # The fastest, and wrong.
                "openvino": figures(1e-4) | {"max_error": 1e-1, "tolerance": 3e-2},
                "aotpack": figures(2e-3) | {"max_error": 1e-2, "tolerance": 3e-2},
            },
            "lstm": {"onnxruntime": {"error": "no"}, "aotpack": figures(1e-3)},
        },
    }


def test_ratios_are_to_the_fastest_engine_with_right_results(document: dict[str, Any]) -> None:
    first, second, alone = peers.rows(document)
    assert (first.best, first.ratio) == ("openvino", 0.5)
    assert (second.best, second.ratio) == ("eager", 2.0)
    assert (alone.best, alone.ratio) == (None, None)


def test_mean_is_geometric() -> None:
    assert peers.mean([0.5, 2.0]) == pytest.approx(1.0)
    assert math.isnan(peers.mean([]))


def test_table_has_a_column_for_each_engine_that_ran(document: dict[str, Any]) -> None:
    lines = peers.table(document).splitlines()
    assert lines[0] == "| p50, ms | aotpack | eager | ONNX Runtime | OpenVINO | aotpack / best |"
    assert lines[2] == "| mlp | 1.00 | – | 4.00 | **2.00** | 0.50 |"
    assert lines[3] == "| bert-bf16 | 2.00 | **1.00** | – | – | 2.00 |"
    assert lines[-1] == "Geometric mean of the ratios: 1.00. aotpack leads on 1 of 2."


def test_starts_compare_with_onnx_runtime(document: dict[str, Any]) -> None:
    assert peers.starts(document).splitlines()[2:] == ["| mlp | 20.0 | – | 100 | 0.20 | 2.0 | 2.0 | 1.0 |"]


def test_roof_table_has_shares() -> None:
    row = {"seconds": 1.0, "share": 0.75, "roof": 0.5}
    roof = {
        "threads": 2,
        "roof": {"fp32": 2e11, "bf16": 0.0, "int8": 1e12, "reads": 2e10},
        "models": {"bert": {"classes": {"linear": row, "softmax": {**row, "share": 0.25, "roof": None}}}},
    }
    lines = peers.roof_table(roof).splitlines()
    assert lines[2] == "| bert | 75% (**50%**) | 25% |"
    assert lines[-1] == "Measured with 2 threads: fp32 200 GFLOP/s, int8 1000 GFLOP/s, reads 20.0 GB/s."


def test_plot_is_a_png(document: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    peers.plot(document, tmp_path / "made" / "plot.png")
    assert (tmp_path / "made" / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_documents_of_one_machine_are_merged(document: dict[str, Any]) -> None:
    other = {**document, "models": {"mlp": {"llamacpp": figures(5e-4)}, "vit": {"eager": figures(1.0)}}}
    merged = report.merged([document, other])
    assert list(merged["models"]) == ["mlp", "bert-bf16", "lstm", "vit"]
    assert list(merged["models"]["mlp"]) == ["onnxruntime", "openvino", "aotpack", "llamacpp"]
    with pytest.raises(ValueError, match="different machines"):
        report.merged([document, {**other, "machine": {}}])


def test_performance_names_machine_and_date(document: dict[str, Any]) -> None:
    text = report.performance(document, None)
    assert "a processor, 2 cores, 2 threads" in text
    assert "2026-01-02" in text
    assert "roof" not in text


def test_rows_of_other_numbers_of_threads_have_them_in_their_names() -> None:
    assert report.row_name("mlp", 2, 2) == "mlp"
    assert report.row_name("mlp", 1, 2) == "mlp@1"
