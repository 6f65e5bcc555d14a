"""Writes a tiny model without weights: models.py FOLDER.

A server that is told to load dummy weights needs no more than the configuration and a tokenizer, here one
of single bytes. The weights come from a fixed seed, so the same prompt has the same answer every time.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CONTEXT = 2048
SPECIAL = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}


def write(folder: Path) -> None:
    """Write the model."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *SPECIAL.values()]
    _write_tokenizer(folder, {token: n for n, token in enumerate(vocabulary)})
    _write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "bfloat16",
            "vocab_size": 320,
            "max_position_embeddings": CONTEXT,
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            **{f"{name}_token_id": vocabulary.index(token) for name, token in SPECIAL.items()},
        },
    )


def _write_tokenizer(folder: Path, vocabulary: dict[str, int]) -> None:
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL.values()))
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONTEXT,
            "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
            **{f"{name}_token": token for name, token in SPECIAL.items()},
        },
    )


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
