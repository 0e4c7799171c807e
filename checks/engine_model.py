"""Makes the model folder of `make check-tokens` out of a GGUF file. Runs in the engine's environment."""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TRAP = {"top_k": 20, "top_p": 0.8}
"""Defaults of the model that the engine samples with wherever a request does not say otherwise."""


def main(gguf: Path, out: Path) -> None:
    """The weights as fp32, in the form that vLLM and transformers both read."""
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    del loaded.config.quantization_config
    # What was loaded from a GGUF file refuses to be saved.
    model = AutoModelForCausalLM.from_config(loaded.config)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(**source).save_pretrained(out)
    defaults = out / "generation_config.json"
    defaults.write_text(json.dumps(json.loads(defaults.read_text()) | TRAP))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
