"""Trained models for other programs: onnxruntime, which Kutta itself uses, and CTranslate2."""
