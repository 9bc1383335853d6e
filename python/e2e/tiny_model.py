"""Writes a tiny Qwen2-VL with random weights: a whole model directory, without a hub.

    python tiny_model.py DIRECTORY

The language model is as small as it can be; the encoder's output has a real width (2048 bfloat16: 4 KiB a
token, 28 x 28 pixels a token), so that items have real sizes: 1.6 MB for 560 x 560, 6.2 MB for 1092 x 1092.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WIDTH, LAYERS, HEADS, KV_HEADS, INNER, VOCABULARY = 2048, 2, 16, 2, 512, 512
VISION_WIDTH, VISION_HEADS, VISION_DEPTH, PATCH, MERGE = 320, 4, 1, 14, 2
PIXELS_MAX = 1092 * 1092
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
SPECIAL += ["<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write(directory: Path) -> None:
    """The directory, whole or not at all."""
    if (directory / "model.safetensors").exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    tokens = tokenizer(directory)
    for name, content in {**processors(), **configurations(tokens)}.items():
        (directory / f"{name}.json").write_text(json.dumps(content, indent=1))
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    partial = directory / "model.partial"
    save_file(weights(), partial, metadata={"format": "pt"})
    partial.rename(directory / "model.safetensors")


def tokenizer(directory: Path) -> dict[str, int]:
    """A token for each byte, and the special ones; their numbers."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    made.save(str(directory / "tokenizer.json"))
    return {token: made.token_to_id(token) for token in SPECIAL}


def processors() -> dict[str, Any]:
    common = {
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "merge_size": MERGE,
        "min_pixels": 56 * 56,
        "max_pixels": PIXELS_MAX,
        "size": {"shortest_edge": 56 * 56, "longest_edge": PIXELS_MAX},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.25, 0.25, 0.25],
        "rescale_factor": 1 / 255,
        "processor_class": "Qwen2VLProcessor",
    }
    common |= dict.fromkeys(("do_resize", "do_rescale", "do_normalize", "do_convert_rgb"), True)
    return {
        "preprocessor_config": {**common, "image_processor_type": "Qwen2VLImageProcessor"},
        "video_preprocessor_config": {**common, "video_processor_type": "Qwen2VLVideoProcessor"},
    }


def configurations(tokens: dict[str, int]) -> dict[str, Any]:
    ends = {"eos_token_id": tokens["<|im_end|>"], "pad_token_id": tokens["<|endoftext|>"]}
    # A head's dimensions, in three parts: time, height, width.
    half = WIDTH // HEADS // 2
    parts = [half // 4, (half - half // 4) // 2]
    rope = {"type": "mrope", "rope_type": "default", "rope_theta": 1e6}
    rope["mrope_section"] = [*parts, half - sum(parts)]
    vision = {
        "model_type": "qwen2_vl",
        "depth": VISION_DEPTH,
        "embed_dim": VISION_WIDTH,
        "hidden_size": WIDTH,
        "num_heads": VISION_HEADS,
        "mlp_ratio": 4,
        "in_channels": 3,
        "in_chans": 3,
        "patch_size": PATCH,
        "spatial_patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "hidden_act": "quick_gelu",
    }
    config = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "torch_dtype": "bfloat16",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_scaling": rope,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "vocab_size": VOCABULARY,
        "bos_token_id": tokens["<|endoftext|>"],
        "image_token_id": tokens["<|image_pad|>"],
        "video_token_id": tokens["<|video_pad|>"],
        "vision_start_token_id": tokens["<|vision_start|>"],
        "vision_end_token_id": tokens["<|vision_end|>"],
        "vision_token_id": tokens["<|vision_pad|>"],
        "vision_config": vision,
        **ends,
    }
    named = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 32768,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
        "additional_special_tokens": SPECIAL[1:],
    }
    return {"config": config, "tokenizer_config": named, "generation_config": ends}


def weights() -> dict[str, torch.Tensor]:
    """By the names of Qwen2-VL's checkpoints; always the same values."""
    generator = torch.Generator().manual_seed(0)
    made: dict[str, torch.Tensor] = {}

    def random(*shape: int, inputs: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) / math.sqrt(inputs)).bfloat16()

    def linear(name: str, outputs: int, inputs: int, bias: bool = True) -> None:
        made[f"{name}.weight"] = random(outputs, inputs, inputs=inputs)
        if bias:
            made[f"{name}.bias"] = torch.zeros(outputs).bfloat16()

    def norm(name: str, width: int, bias: bool = False) -> None:
        made[f"{name}.weight"] = torch.ones(width).bfloat16()
        if bias:
            made[f"{name}.bias"] = torch.zeros(width).bfloat16()

    head = WIDTH // HEADS
    made["model.embed_tokens.weight"] = random(VOCABULARY, WIDTH, inputs=1)
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        linear(f"{layer}.self_attn.q_proj", HEADS * head, WIDTH)
        linear(f"{layer}.self_attn.k_proj", KV_HEADS * head, WIDTH)
        linear(f"{layer}.self_attn.v_proj", KV_HEADS * head, WIDTH)
        linear(f"{layer}.self_attn.o_proj", WIDTH, HEADS * head, bias=False)
        linear(f"{layer}.mlp.gate_proj", INNER, WIDTH, bias=False)
        linear(f"{layer}.mlp.up_proj", INNER, WIDTH, bias=False)
        linear(f"{layer}.mlp.down_proj", WIDTH, INNER, bias=False)
        norm(f"{layer}.input_layernorm", WIDTH)
        norm(f"{layer}.post_attention_layernorm", WIDTH)
    norm("model.norm", WIDTH)
    linear("lm_head", VOCABULARY, WIDTH, bias=False)
    inputs = 3 * 2 * PATCH * PATCH
    made["visual.patch_embed.proj.weight"] = random(VISION_WIDTH, 3, 2, PATCH, PATCH, inputs=inputs)
    for number in range(VISION_DEPTH):
        block = f"visual.blocks.{number}"
        norm(f"{block}.norm1", VISION_WIDTH, bias=True)
        norm(f"{block}.norm2", VISION_WIDTH, bias=True)
        linear(f"{block}.attn.qkv", 3 * VISION_WIDTH, VISION_WIDTH)
        linear(f"{block}.attn.proj", VISION_WIDTH, VISION_WIDTH)
        linear(f"{block}.mlp.fc1", 4 * VISION_WIDTH, VISION_WIDTH)
        linear(f"{block}.mlp.fc2", VISION_WIDTH, 4 * VISION_WIDTH)
    merged = MERGE * MERGE * VISION_WIDTH
    norm("visual.merger.ln_q", VISION_WIDTH, bias=True)
    linear("visual.merger.mlp.0", merged, merged)
    linear("visual.merger.mlp.2", WIDTH, merged)
    return {name: tensor.contiguous() for name, tensor in made.items()}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
