"""Writes a tiny model without weights: model.py FOLDER [llama|mla].

A server that is told to load dummy weights needs no more than the configuration and a tokenizer, here one
of single bytes. The weights come from a fixed seed, so the same prompt has the same answer every time.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CONTEXT = 2048
SPECIAL = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
KINDS = {
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    },
    # The attention of DeepSeek-V3.2, 16 heads of it, and no experts: every layer is dense.
    "mla": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "kv_lora_rank": 512,
        "q_lora_rank": 192,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "moe_intermediate_size": 128,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 2,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
        "norm_topk_prob": False,
        "scoring_func": "softmax",
        "routed_scaling_factor": 1.0,
        "rope_scaling": None,
        "attention_bias": False,
    },
}


def write(folder: Path, kind: str) -> None:
    """Write the model; `kind` is one of `KINDS`."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *SPECIAL.values()]
    _write_tokenizer(folder, {token: n for n, token in enumerate(vocabulary)})
    _write_json(
        folder / "config.json",
        {
            **KINDS[kind],
            "dtype": "bfloat16",
            "vocab_size": 320,
            "max_position_embeddings": CONTEXT,
            "num_hidden_layers": 2,
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
    write(Path(sys.argv[1]), *(sys.argv[2:] or ["llama"]))
