"""What is tested without an sm_90 is what the compiler makes of it; there is no interpreter of Gluon."""

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
import mma  # noqa: E402
import torch  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource, CompiledKernel  # noqa: E402

SHARED_MEMORY = 232_448  # bytes that a program may have on an sm_90


TYPES = {"query": "*bf16", "cache": "*bf16", "indices": "*i32", "results": "*bf16", "logs": "*fp32"}
ALIGNED = {(place,): [["tt.divisibility", 16]] for place in range(len(TYPES))}


def compiled(source: object, warps: int, folder: Path) -> tuple[CompiledKernel, str]:
    """A kernel compiled for an sm_90, and what ptxas says of it."""
    options = {"num_warps": warps, "launch_pdl": True}
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assembly = folder / "tile.ptx"
    assembly.write_text(kernel.asm["ptx"])
    ptxas = [triton.knobs.nvidia.ptxas.path, "-v", "-arch=sm_90a", assembly, "-o", folder / "tile.cubin"]
    return kernel, subprocess.run(ptxas, check=True, capture_output=True, text=True, timeout=60).stderr


@pytest.mark.parametrize(("heads", "splits"), [(128, 1), (64, 16), (16, 32)])
def test_the_compiler_keeps_the_tensor_cores_busy(heads: int, splits: int, tmp_path: Path) -> None:
    """It fits into registers and shared memory, and no product waits for the one before (ptxas: C7514)."""
    constants = {"COUNT": 2048, "HEADS": heads, "SPLITS": splits, "D": 512, "R": 64, "OVERLAP": True}
    signature = {**TYPES, "scale": "fp32", "each": "i32", **dict.fromkeys(constants, "constexpr")}
    source = gluon.GluonASTSource(hopper.tile, signature, constants, ALIGNED)
    kernel, said = compiled(source, 8, tmp_path)
    assert kernel.metadata.shared <= SHARED_MEMORY
    assert kernel.asm["ptx"].count("wgmma.mma_async") == 36 + 4  # 576 / 16 of the scores, 64 / 16 of the sums
    assert "cp.async.cg.shared.global" in kernel.asm["ptx"]
    assert "0 bytes spill stores, 0 bytes spill loads" in said
    assert "serialized" not in said


def test_four_warps_work_out_the_scores_once(tmp_path: Path) -> None:
    """`mma` with half of the columns: with eight warps, two groups of them would work out the same scores."""
    cut = mma.sizes(1, 128, 2048)
    tile = {"SPLITS": cut.splits, "H": cut.heads, "N": cut.tokens, "STAGES": cut.stages, "V": cut.columns}
    constants = {**tile, "COUNT": 2048, "HEADS": 128, "D": 512, "R": 64, "FP8": False, "OVERLAP": True}
    signature = {**TYPES, "scale": "fp32", **dict.fromkeys(constants, "constexpr")}
    kernel, said = compiled(ASTSource(mma.tile, signature, constants, ALIGNED), cut.warps, tmp_path)
    assert kernel.metadata.shared <= SHARED_MEMORY
    assert kernel.asm["ptx"].count("wgmma.mma_async") == 36 + 4
    assert "0 bytes spill stores, 0 bytes spill loads" in said


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
