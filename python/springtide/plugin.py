"""The entry point `vllm.general_plugins`: `"ec_connector": "SpringtideConnector"` is then enough."""

NAME = "SpringtideConnector"


def register() -> None:
    """Makes the connector known to vLLM. Called by vLLM in each of its processes; a second call does nothing."""
    try:
        from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
    except ImportError:
        # A vLLM without encoder-cache connectors has no use for one.
        return
    try:
        ECConnectorFactory.register_connector(NAME, "springtide.vllm", NAME)
    except ValueError:
        # It is registered already.
        return
