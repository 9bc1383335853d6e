"""springtide: an encoder-cache connector for vLLM on Mooncake Store.

| module | what it is |
|---|---|
| `springtide.vllm` | the connector that vLLM loads |
| `springtide.plugin` | makes it known to vLLM by its name alone |
| `springtide.model` | what of a model's configuration changes its encoder outputs |
| `springtide.quiet` | a limit on lines of the log that say the same |
| `springtide.proxy` | a proxy in front of encoders and prefill/decode instances |

What decides and what moves bytes is the extension module `springtide._native`, written in Rust.
"""

from springtide._native import __version__

__all__ = ["__version__"]
