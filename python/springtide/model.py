"""What of a model's configuration changes the bytes of its encoder outputs.

Two instances share items exactly when all of this is equal. What differs between them for good reasons (the
path of the same weights, the device of the processor) can be set in `ec_connector_extra_config`, under
`namespace`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

# Bytes that are read at each end of a file of weights: its header with the names, and some of the values.
SAMPLE = 64 << 10
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
# Options of the processor that change where it runs, not what it makes.
PLACES = ("device",)
# Parts of a model's configuration that belong to its encoders.
ENCODERS = ("vision_config", "audio_config", "speech_config", "visual", "vision_tower_config", "projector_config")


def describe(vllm_config: Any) -> dict[str, Any]:
    """The parts of the namespace, as the extension module takes them."""
    model = vllm_config.model_config
    return {
        "model": str(model.model),
        "revision": revision(model),
        "processor": processor(model),
        "encoder": encoder(model),
        "adapter": adapter(vllm_config),
        "dtype": str(model.dtype).removeprefix("torch."),
        "width": width(model),
    }


def revision(model: Any) -> str:
    """The commit of a model from a hub, or a digest of local weights."""
    path = Path(str(model.model))
    if path.is_dir():
        return weights_digest(path)
    commit = getattr(getattr(model, "hf_config", None), "_commit_hash", None)
    return str(commit or getattr(model, "revision", None) or "")


def weights_digest(path: Path) -> str:
    """A digest of names, sizes and both ends of all weights: enough to tell a model from its fine-tune,
    without reading gigabytes at every start."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(path.iterdir()):
        if file.suffix in WEIGHTS and file.is_file():
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode())
            with file.open("rb") as content:
                digest.update(content.read(SAMPLE))
                content.seek(max(0, size - SAMPLE))
                digest.update(content.read(SAMPLE))
    return digest.hexdigest()


def processor(model: Any) -> str:
    """The options of the processor, which decide what the encoder sees."""
    media = getattr(model, "multimodal_config", None)
    options = dict(getattr(media, "mm_processor_kwargs", None) or {})
    for place in PLACES:
        options.pop(place, None)
    loading = getattr(media, "media_io_kwargs", None) or {}
    pruning = [getattr(media, name, None) for name in ("video_pruning_rate", "video_pruning_method")]
    if pruning[0] is None:
        pruning = []
    return text({"options": options, "loading": loading, "pruning": [str(value) for value in pruning]})


def encoder(model: Any) -> str:
    """The configuration of the model's encoders."""
    config = getattr(model, "hf_config", None)
    to_dict = getattr(config, "to_dict", None)
    parts = to_dict() if to_dict else {}
    parts = {name: parts[name] for name in ENCODERS if name in parts}
    # What a library adds at loading says nothing about the output.
    for part in parts.values():
        if isinstance(part, dict):
            for added in ("transformers_version", "_name_or_path", "_attn_implementation_autoset"):
                part.pop(added, None)
    media = getattr(model, "multimodal_config", None)
    precision = getattr(media, "mm_encoder_attn_dtype", None)
    quantization = getattr(model, "quantization", None)
    return text({"parts": parts, "attention": str(precision), "quantization": str(quantization)})


def adapter(vllm_config: Any) -> str:
    """Whether adapters may change the encoder. Which one it is stands in each item's identifier, by name."""
    lora = getattr(vllm_config, "lora_config", None)
    return "tower" if getattr(lora, "enable_tower_connector_lora", False) else ""


def width(model: Any) -> int:
    """Elements in a row of the encoder's output: the language model's width, once for itself and once for
    each level that the encoder adds to it (DeepStack). 0 if the configuration does not say."""
    config = getattr(model, "hf_config", None)
    language = getattr(config, "text_config", None) or config
    hidden = getattr(language, "hidden_size", 0) or 0
    vision = getattr(config, "vision_config", None)
    levels = getattr(vision, "deepstack_visual_indexes", None) or []
    return int(hidden) * (1 + len(levels))


def text(value: Any) -> str:
    """The same text for the same value, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
