"""The error that huggingface_hub's HTTP client raises for a broken connection."""

from importlib import import_module, metadata

# huggingface_hub 2 moved from httpx to httpx2. Both can be installed, so its version decides.
_HTTPX = int(metadata.version("huggingface_hub").partition(".")[0]) < 2

TransportError: type[Exception] = import_module("httpx" if _HTTPX else "httpx2").TransportError
