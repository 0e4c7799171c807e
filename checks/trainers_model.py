"""A tiny random model whose tokenizer knows the ids of the scripted model: its bytes, and the marks of who speaks."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteFallback
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MARKS = ("system", "user", "assistant", "tool", "think", "say", "call", "arguments", "end")
"""In the order of their ids, which follow those of the bytes."""
TEMPLATE = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}<|assistant|>"


def write_model(folder: Path) -> None:
    """Write model and tokenizer to a new folder."""
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=256 + len(MARKS), max_position_embeddings=65_536, num_key_value_heads=2, **shape)
    LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    core = Tokenizer(BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    core.decoder = ByteFallback()
    core.add_special_tokens([f"<|{name}|>" for name in MARKS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", pad_token="<|end|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
