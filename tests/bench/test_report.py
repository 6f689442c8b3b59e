import copy
from typing import Any

import pytest

from bench import report

FIGURES = {
    "build_s": 2.0,
    "bytes": 3_000_000,
    "start_s": 0.05,
    "peak_rss": 40_000_000,
    "p50_s": 0.001,
    "p90_s": 0.002,
    "max_error": 1e-6,
}


@pytest.fixture
def document() -> dict[str, Any]:
    slow = {key: value * 4 for key, value in FIGURES.items()}
    return {
        "machine": {"cpu": "a processor", "cores": 2, "python": "3.11", "versions": {"torch": "2.13.0"}},
        "settings": {"threads": 2, "tolerance": 1e-4},
        "models": {
            "mlp": {"aoti": slow, "aotpack": dict(FIGURES), "onnxruntime": {"error": "onnxscript not installed"}}
        },
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234.5, "1234"), (12.345, "12.3"), (1.2345, "1.23"), (0.012345, "0.0123"), (10.0, "10.0")],
)
def test_number_keeps_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


def test_rows_have_ratios_to_the_baseline(document: dict[str, Any]) -> None:
    (_, first, base), (_, second, ours), (_, third, absent) = report.rows(document, "aoti")
    assert (first, second, third) == ("AOTInductor", "aotpack", "ONNX Runtime")
    assert base[0] == "8.00"
    assert ours[0] == "2.00 (0.25)"
    assert ours[2] == "50.0 (0.25)"
    assert absent == ["onnxscript not installed"]


def test_without_the_baseline_there_are_no_ratios(document: dict[str, Any]) -> None:
    assert all("(" not in cell for _, _, row in report.rows(document, "eager") for cell in row)


def test_every_line_of_the_markdown_has_the_same_columns(document: dict[str, Any]) -> None:
    lines = report.markdown(document, "aoti").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 5
    assert {line.count("|") for line in table} == {len(report.HEADINGS) + 3}


def test_summary_puts_ours_first(document: dict[str, Any]) -> None:
    assert "| mlp | 50.0 / 200 / – | 40.0 / 160 / – | 1.00 / 4.00 / – | 2.00 / 8.00 / – |" in report.summary(document)


def test_replace_table_keeps_what_is_around() -> None:
    text = f"above\n{report.BEGIN}\nold\n{report.END}\nbelow\n"
    assert report.replace_table(text, "new") == f"above\n{report.BEGIN}\nnew\n{report.END}\nbelow\n"


def test_replace_table_wants_both_markers() -> None:
    with pytest.raises(ValueError, match="bench:begin"):
        report.replace_table(f"above\n{report.BEGIN}\nold", "new")


def test_a_wrong_or_failed_engine_is_a_failure(document: dict[str, Any]) -> None:
    assert report.failures(document) == []
    wrong = copy.deepcopy(document)
    wrong["models"]["mlp"]["aotpack"]["max_error"] = 2e-4
    wrong["models"]["mlp"]["aoti"] = {"error": "it broke"}
    first, second = sorted(report.failures(wrong))
    assert "aoti: it broke" in first
    assert "aotpack: wrong by 2.0e-04" in second
