"""The oracle of `make check-tokens`: transformers in fp32, in the engine's environment.

Standard input holds rows, standard output what they are to this model: the log-probabilities and ranks of the ids at
`positions`, the texts of `spans` and of all, and the text that the template makes of `chat`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: Path, template: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    told = [
        score(model, row) | texts(tokenizer, row) | {"rendered": render(tokenizer, template.read_text(), row["chat"])}
        for row in json.load(sys.stdin)
    ]
    json.dump(told, sys.stdout)


def score(model: Any, row: dict[str, Any]) -> dict[str, Any]:
    """How likely each of these ids was after all that stands before it, and how many were likelier."""
    positions = torch.tensor(row["positions"])
    ids = torch.tensor([row["tokens"]])
    with torch.inference_mode():
        logits = model(ids, logits_to_keep=positions - 1).logits[0]
    logprobs = torch.log_softmax(logits.double(), dim=-1)
    chosen = logprobs.gather(1, ids[0, positions].unsqueeze(1))
    return {"logprobs": chosen[:, 0].tolist(), "ranks": (logprobs > chosen).sum(dim=1).tolist()}


def texts(tokenizer: Any, row: dict[str, Any]) -> dict[str, Any]:
    tokens = row["tokens"]
    return {
        "texts": [tokenizer.decode(tokens[start:end]) for start, end in row["spans"]],
        "text": tokenizer.decode(tokens),
    }


def render(tokenizer: Any, template: str, chat: dict[str, Any]) -> str:
    """The text of a chat as vLLM reads it: text parts in lines, arguments as objects, an empty one for what is none."""
    messages = [dict(message) for message in chat["messages"]]
    for message in messages:
        if isinstance(message.get("content"), list):
            message["content"] = "\n".join(part["text"] for part in message["content"])
        for call in message.get("tool_calls") or []:
            given = json.loads(call["function"]["arguments"])
            call["function"]["arguments"] = given if isinstance(given, dict) else {}
    options = {"tools": chat.get("tools"), "chat_template": template, "add_generation_prompt": True, "tokenize": False}
    return str(tokenizer.apply_chat_template(messages, **options))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
