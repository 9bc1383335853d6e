"""springtide: an encoder-cache connector for vLLM on Mooncake Store.

The connector itself is the extension module `springtide._native`, written in Rust.
"""

from springtide._native import __version__

__all__ = ["__version__"]
