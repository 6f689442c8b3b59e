"""The digit classifier behind FastAPI: one archive, one context per worker thread, no torch in the process.

AOTPACK_ARCHIVE=digits.aotpack uvicorn --factory serve:create_app --port 8000

curl localhost:8000/health
curl localhost:8000/predict -H 'content-type: application/json' -d '{"images": [[[0.0, …8 numbers], …8 rows]]}'
"""

import os
import threading
from typing import Annotated

import numpy as np
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import aotpack

# The archive's dim `batch` allows more. A service should limit the memory of a request.
MAX_IMAGES = 256

Pixel = Annotated[float, Field(ge=0.0, le=1.0)]
Row = Annotated[list[Pixel], Field(min_length=8, max_length=8)]
Image = Annotated[list[Row], Field(min_length=8, max_length=8)]


class Request(BaseModel):
    """Grey images of 8x8 pixels, 0 for background and 1 for ink."""

    images: Annotated[list[Image], Field(min_length=1, max_length=MAX_IMAGES)]


class Prediction(BaseModel):
    digit: int
    probability: float


class Response(BaseModel):
    predictions: list[Prediction]


class Classifier:
    """An archive for any number of threads: the model is shared, and each thread has its own context."""

    def __init__(self, archive: str) -> None:
        self.model = aotpack.load(archive)
        self._local = threading.local()

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """float32 [batch, 1, 8, 8] -> probabilities, float32 [batch, 10]."""
        if not hasattr(self._local, "context"):
            # Requests run in parallel, so each call uses one core.
            self._local.context = self.model.context(num_threads=1)
        logits = np.asarray(self._local.context(images))
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)


def create_app(archive: str | None = None) -> FastAPI:
    """The application. `archive` defaults to the environment variable AOTPACK_ARCHIVE.

    Loading takes milliseconds, so it is done here: a process that came up has its model.
    """
    path = archive or os.environ.get("AOTPACK_ARCHIVE")
    if not path:
        raise SystemExit("set AOTPACK_ARCHIVE to the archive to serve")
    classifier = Classifier(path)
    app = FastAPI(title="digits")

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok", "aotpack": aotpack.__version__}

    # A plain function, not a coroutine: FastAPI runs it in a worker thread, so it does not block the event loop.
    @app.post("/predict")
    def predict(request: Request) -> Response:
        images = np.asarray(request.images, dtype=np.float32)[:, None]
        try:
            shares = classifier(images)
        except aotpack.errors.AotpackError as error:
            raise HTTPException(status_code=422, detail=str(error)) from error
        best = shares.argmax(axis=1)
        pairs = zip(best, shares, strict=True)
        return Response(predictions=[Prediction(digit=int(d), probability=float(row[d])) for d, row in pairs])

    return app
