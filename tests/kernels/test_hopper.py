"""There is no interpreter of Gluon: what is tested without an sm_90 is what the compiler makes of it."""

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the kernels' tests need torch: make kernels")
triton = pytest.importorskip("triton", reason="the kernels' tests need triton: make kernels")
gluon = pytest.importorskip("triton.experimental.gluon._runtime", reason="this triton has no Gluon")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("compiled, not interpreted", allow_module_level=True)

import hopper  # noqa: E402
import torch  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402

SHARED_MEMORY = 232_448  # bytes that a program may have on an sm_90


@pytest.mark.parametrize(("heads", "splits"), [(128, 1), (64, 16), (16, 32)])
def test_the_compiler_keeps_the_tensor_cores_busy(heads: int, splits: int, tmp_path: Path) -> None:
    """It fits into registers and shared memory, and no product waits for the one before (ptxas: C7514)."""
    types = {"query": "*bf16", "cache": "*bf16", "indices": "*i32", "results": "*bf16", "logs": "*fp32"}
    constants = {"COUNT": 2048, "HEADS": heads, "SPLITS": splits, "D": 512, "R": 64, "OVERLAP": True}
    signature = {**types, "scale": "fp32", "each": "i32", **dict.fromkeys(constants, "constexpr")}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(types))}
    source = gluon.GluonASTSource(hopper.tile, signature, constants, aligned)
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    ptx = kernel.asm["ptx"]
    assert kernel.metadata.shared <= SHARED_MEMORY
    assert ptx.count("wgmma.mma_async") == 36 + 4  # 576 / 16 of the scores, 64 / 16 of the sums
    assert "cp.async.cg.shared.global" in ptx
    assembly = tmp_path / "tile.ptx"
    assembly.write_text(ptx)
    ptxas = [triton.knobs.nvidia.ptxas.path, "-v", "-arch=sm_90a", assembly, "-o", tmp_path / "tile.cubin"]
    said = subprocess.run(ptxas, check=True, capture_output=True, text=True, timeout=60).stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in said
    assert "serialized" not in said


@given(batch=st.integers(1, 256), heads=st.sampled_from([16, 64, 128]), count=st.integers(1, 2048))
def test_the_splits_fit_one_wave(batch: int, heads: int, count: int) -> None:
    """A program has a tile of tokens at least, and no second wave begins."""
    splits = hopper.splits(batch, heads, count)
    assert splits == 1 or (
        splits * batch * triton.cdiv(heads, 64) <= 132 and splits <= triton.cdiv(count, 64)
    )


def test_the_fp8_form_is_refused() -> None:
    """The error says which kernel reads it."""
    query, cache = torch.zeros(1, 1, 576).bfloat16(), torch.zeros(1, 1, 656, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"mma\.py"):
        hopper.attend(query, cache, torch.zeros(1, 1, dtype=torch.int32), 1.0)
