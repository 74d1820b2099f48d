"""What computes exported models."""

import pytest

from kutta.runtime.kernels import obstacle


@pytest.fixture(params=["kernels", "onnxruntime"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernels, where they are compiled and the CPU can run them; and onnxruntime."""
    if request.param == "onnxruntime":
        monkeypatch.setattr("kutta.translate.exported.obstacle", lambda _: "not wanted")
    elif obstacle():
        pytest.skip(obstacle())
    return request.param
