from pathlib import Path

import pytest

from bench import compare
from bench.process import Checkout


def test_both_sides_run_in_every_turn_and_the_first_one_alternates() -> None:
    assert compare.in_turns(3) == [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]


def samples(scale: float) -> compare.Samples:
    return {key: [scale * value for value in (1.0, 10.0, 3.0)] for key in compare.FIGURES}


def test_the_ratio_is_the_median_over_the_turns() -> None:
    # The machine is ten times slower in the second turn; one turn of one side is disturbed.
    before, after = samples(1.0), samples(1.02)
    after["p50_s"][0] *= 5
    results = compare.summarize([before, after])
    assert results["p50_s"]["ratio"] == pytest.approx(1.02)
    assert results["build_s"] == pytest.approx({"before": 3.0, "after": 3.06, "ratio": 1.02})


def test_the_mean_of_ratios_is_geometric() -> None:
    models = {
        "mlp": compare.summarize([samples(1.0), samples(2.0)]),
        "lstm": compare.summarize([samples(1.0), samples(0.5)]),
    }
    assert compare.geometric_means(models)["start_s"] == pytest.approx(1.0)


def test_a_folder_without_a_virtual_environment_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make setup"):
        Checkout.at(tmp_path)
