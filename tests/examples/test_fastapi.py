import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from .conftest import EXAMPLES, load_module, run

pytestmark = [pytest.mark.examples, pytest.mark.torch]

pytest.importorskip("fastapi")
testclient = pytest.importorskip("fastapi.testclient", exc_type=(ImportError, RuntimeError))

SERVE = EXAMPLES / "fastapi" / "serve.py"


@pytest.fixture(scope="module")
def client(digits: Path):  # type: ignore[no-untyped-def]
    with testclient.TestClient(load_module(SERVE).create_app(str(digits / "digits.aotpack"))) as client:
        yield client


@pytest.fixture(scope="module")
def heldout(digits: Path) -> dict[str, np.ndarray]:
    with np.load(digits / "heldout.npz") as arrays:
        return dict(arrays)


def test_health(client) -> None:  # type: ignore[no-untyped-def]
    answer = client.get("/health")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"


def test_predictions_match_eager(client, heldout: dict[str, np.ndarray]) -> None:  # type: ignore[no-untyped-def]
    answer = client.post("/predict", json={"images": heldout["images"][:40, 0].tolist()})
    assert answer.status_code == 200
    predictions = answer.json()["predictions"]
    assert [p["digit"] for p in predictions] == heldout["eager"][:40].argmax(1).tolist()
    assert all(0.1 <= p["probability"] <= 1 for p in predictions)


def test_requests_at_once_get_their_own_answers(client, heldout: dict[str, np.ndarray]) -> None:  # type: ignore[no-untyped-def]
    def ask(index: int) -> int:
        answer = client.post("/predict", json={"images": [heldout["images"][index, 0].tolist()]})
        return int(answer.json()["predictions"][0]["digit"])

    with ThreadPoolExecutor(8) as pool:
        digits = list(pool.map(ask, range(64)))
    assert digits == heldout["eager"][:64].argmax(1).tolist()


@pytest.mark.parametrize(
    "images",
    [
        [],
        [[[0.0] * 8] * 7],
        [[[0.0] * 7] * 8],
        [[[2.0] * 8] * 8],
        "digits",
        [[[0.0] * 8] * 8] * 257,
    ],
)
def test_a_wrong_request_is_refused(client, images: object) -> None:  # type: ignore[no-untyped-def]
    assert client.post("/predict", json={"images": images}).status_code == 422


def test_serves_without_torch(digits: Path) -> None:
    code = (
        "import sys; import serve; from fastapi.testclient import TestClient;"
        f"client = TestClient(serve.create_app({str(digits / 'digits.aotpack')!r}));"
        "client.post('/predict', json={'images': [[[0.0] * 8] * 8]}).raise_for_status();"
        "print('torch' in sys.modules)"
    )
    assert run(sys.executable, "-c", code, PYTHONPATH=str(SERVE.parent)).strip() == "False"


def test_says_what_to_set_when_there_is_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AOTPACK_ARCHIVE", raising=False)
    with pytest.raises(SystemExit, match="AOTPACK_ARCHIVE"):
        load_module(SERVE).create_app()
