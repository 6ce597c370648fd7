"""Compiling CUDA C with NVRTC, and what is said where the packages, driver or device are missing.

None of this needs a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fxlite.codegen.runtime import cuda_device
from fxlite.codegen.runtime.cuda_device import (
    CudaCompileError,
    CudaDeviceNotFound,
    CudaModule,
    CudaToolkitNotFound,
    compile_cubin,
    find_device,
    nvrtc_version,
    supported_architectures,
)

try:
    nvrtc_version()
    missing = ""
except CudaToolkitNotFound as error:
    missing = str(error)
needs_nvrtc = pytest.mark.skipif(bool(missing), reason=missing or "NVRTC is here")

SOURCE = r"""
#include "prelude.cuh"
extern "C" __global__ void scale(float *x, float a, int64_t n) {
    for (int64_t i = fx_thread_index(); i < n; i += fx_thread_count()) x[i] *= a;
}
extern "C" __global__ void total(const float *x, float *y) {
    __shared__ float extra[100];
    extra[threadIdx.x] = x[threadIdx.x];
    const float sum = fx_block_sum(extra[99 - threadIdx.x]);
    if (threadIdx.x == 0) *y = sum;
}
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))
    return tmp_path


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_compile_reports_what_kernels_take(arch: str) -> None:
    cubin = compile_cubin(SOURCE, arch, "pair.cu")
    assert cubin.code.startswith(b"\x7fELF") and cubin.arch == arch
    assert set(cubin.kernels) == {"scale", "total"}
    scale, total = cubin.kernels["scale"], cubin.kernels["total"]
    assert 8 <= scale.registers <= 255 and (scale.shared, scale.barriers) == (0, 0)
    assert total.shared == 400 + 128 and total.barriers == 1
    assert scale.spill_stores == total.spill_stores == total.spill_loads == 0
    assert f"pair.cu for {arch}" in str(cubin) and "no spills" in str(cubin)


@needs_nvrtc
def test_spills_are_seen() -> None:
    body = "\n".join(f"    float v{i} = x[{i} * t];" for i in range(300))
    uses = "\n".join(f"    __syncthreads(); x[v{i} > 0] = v{i} * v{299 - i};" for i in range(300))
    source = (
        'extern "C" __global__ void __launch_bounds__(1024, 2) hungry(volatile float *x) {\n'
        f"    int t = threadIdx.x;\n{body}\n{uses}\n}}"
    )
    used = compile_cubin(source, "sm_80").kernels["hungry"]
    assert used.spill_stores > 0 and used.registers <= 32
    assert "bytes spilled" in str(used)


@needs_nvrtc
def test_compile_errors_hold_the_diagnostics() -> None:
    with pytest.raises(CudaCompileError, match=r'bad.cu\(3\): error: identifier "y" is undefined'):
        compile_cubin('extern "C" __global__ void f(float *x) {\n\n    *x = y;\n}', "sm_90", "bad.cu")


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_12", "compute_90", "90", "sm_90x"])
def test_unknown_architectures_are_named(arch: str) -> None:
    with pytest.raises(ValueError, match=f"{arch}.* is unknown to NVRTC .*sm_90"):
        compile_cubin(SOURCE, arch)
    assert arch not in supported_architectures()


@needs_nvrtc
def test_results_are_cached(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_cubin(SOURCE, "sm_80")
    files = sorted((own_cache / "nvrtc").iterdir())
    assert [file.suffix for file in files] == [".cubin", ".log"]

    def refuse(*_: Any) -> Any:
        raise AssertionError("compiled again")

    monkeypatch.setattr(cuda_device, "_compile", refuse)
    assert compile_cubin(SOURCE, "sm_80") == first
    changes: list[tuple[str, str, dict[str, Any]]] = [
        (SOURCE, "sm_80", {"cache": False}),
        (SOURCE, "sm_90", {}),
        (SOURCE, "sm_80", {"contract": False}),
        (SOURCE, "sm_80", {"quick": True}),
        (SOURCE + " ", "sm_80", {}),
    ]
    for source, arch, options in changes:
        with pytest.raises(AssertionError, match="compiled again"):
            compile_cubin(source, arch, **options)


@needs_nvrtc
def test_contraction_changes_the_code() -> None:
    source = 'extern "C" __global__ void f(float *x) { x[0] = x[1] * x[2] + x[3]; }'
    fused, exact = (compile_cubin(source, "sm_80", contract=c).code for c in (True, False))
    assert fused != exact


@pytest.mark.parametrize("package", ["cuda.bindings", "cuda.core"])
def test_missing_packages_say_what_to_install(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for name in [name for name in sys.modules if name.startswith("cuda.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CudaToolkitNotFound, match=r"pip install fxlite\[cuda\]"):
        compile_cubin(SOURCE, "sm_80", cache=False)
    with pytest.raises(CudaDeviceNotFound, match=r"packages are missing.*pip install fxlite\[cuda"):
        find_device()


@needs_nvrtc
def test_missing_device_says_what_is_missing() -> None:
    try:
        find_device()
    except CudaDeviceNotFound as error:
        assert any(
            text in str(error) for text in ("libcuda.so.1) does not load", "driver does not start", "no CUDA device 0")
        )
        with pytest.raises(CudaDeviceNotFound):
            CudaModule(SOURCE)
    else:
        pytest.skip("there is a device")
    with pytest.raises(ValueError, match="no kernel"):  # the source is looked at first
        CudaModule(SOURCE, ["absent"])
