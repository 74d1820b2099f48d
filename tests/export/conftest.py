"""What computes exported models."""

import pytest

from kutta.runtime.kernels import library


@pytest.fixture(params=["kernels", "onnxruntime"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernels, where they are compiled and the CPU can run them; and onnxruntime."""
    if request.param == "onnxruntime":
        monkeypatch.setattr("kutta.translate.exported.can_run", lambda _: False)
    elif library() is None:
        pytest.skip("the kernels are not compiled, or not for this CPU")
    return request.param
