"""What sglang's runner of CPU graphs asks for, and only the attention backend for AMX gives it."""

from types import ModuleType


def add_hooks(backend: ModuleType) -> None:
    """Add the hooks of a capture to the attention backend of torch; it keeps nothing between two steps.

    Args:
        backend: `sglang.srt.layers.attention.torch_native_backend`.
    """

    def nothing(*_args: object, **_named: object) -> None:
        """There is no state to lay out, and no metadata to renew."""

    attention = backend.TorchNativeAttnBackend
    attention.init_cpu_graph_state = nothing
    attention.init_forward_metadata_capture_cpu_graph = nothing
    attention.init_forward_metadata_replay_cpu_graph = nothing
    attention.get_cpu_graph_seq_len_fill_value = lambda _self: 1


def skip_fake_operators(runner: ModuleType) -> None:
    """Do without fake implementations of the operators of `sgl_kernel`: the stub has none of them.

    Args:
        runner: `sglang.srt.model_executor.cpu_graph_runner`.
    """
    vars(runner)["register_fake_ops"] = lambda _tensor_parallel_size: None
