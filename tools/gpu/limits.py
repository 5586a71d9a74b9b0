"""The card's own limits: copies within its memory, and products of bf16 by cuBLAS.

  limits.py [--mib N] [--n N] --json FILE

Copy bandwidth counts both directions (bytes read and written). Both are the best of five runs.
Without libcublas, or on a stand-in driver, there is no figure for products.
"""
import argparse
import ctypes
import json
import sys
import time

OK = 0
BF16, FLOAT, COMPUTE_F32 = 14, 0, 68  # CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F


def must(code, call):
    if code != OK:
        raise RuntimeError(f"{call}: error {code}")


class Card:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        must(self.cuda.cuInit(0), "cuInit")
        context = ctypes.c_void_p()
        must(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "context")
        must(self.cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        self.stream = ctypes.c_void_p()
        must(self.cuda.cuStreamCreate(ctypes.byref(self.stream), 1), "cuStreamCreate")

    def memory(self, n_bytes):
        address = ctypes.c_uint64()
        must(self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(n_bytes)), "memory")
        return address

    def wait(self):
        must(self.cuda.cuStreamSynchronize(self.stream), "cuStreamSynchronize")

    def best(self, run, times):
        """Shortest seconds of one of `times` calls in a row, of five rounds."""
        best = float("inf")
        for _ in range(5):
            self.wait()
            begin = time.perf_counter()
            for _ in range(times):
                run()
            self.wait()
            best = min(best, (time.perf_counter() - begin) / times)
        return best


def copies(card, n_bytes):
    a, b = card.memory(n_bytes), card.memory(n_bytes)
    seconds = card.best(
        lambda: must(card.cuda.cuMemcpyDtoDAsync_v2(a, b, ctypes.c_size_t(n_bytes), card.stream),
                     "copy"), 8)
    return 2 * n_bytes / seconds


def products(card, n):
    blas = None
    for name in ("libcublas.so.13", "libcublas.so.12", "libcublas.so"):
        try:
            blas = ctypes.CDLL(name)
            break
        except OSError:
            continue
    if blas is None:
        return None
    handle = ctypes.c_void_p()
    if blas.cublasCreate_v2(ctypes.byref(handle)) != OK:
        return None
    must(blas.cublasSetStream_v2(handle, card.stream), "cublasSetStream")
    x, w, y = (card.memory(n * n * 2) for _ in range(3))
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    seconds = card.best(
        lambda: must(blas.cublasGemmEx(
            handle, 1, 0, n, n, n, ctypes.byref(one), w, BF16, n, x, BF16, n, ctypes.byref(zero),
            y, BF16, n, COMPUTE_F32, -1), "cublasGemmEx"), 16)
    return 2 * n**3 / seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--n", type=int, default=8192)
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    try:
        card = Card()
    except OSError as error:
        print(f"no driver: {error}")
        return 77
    found = {"copy_bytes_per_s": copies(card, options.mib << 20),
             "bf16_ops_per_s": products(card, options.n)}
    with open(options.json, "w", encoding="utf-8") as f:
        json.dump(found, f)
    print(f"copy {found['copy_bytes_per_s'] / 1e9:.1f} GB/s, products "
          + (f"{found['bf16_ops_per_s'] / 1e12:.1f} TFLOP/s" if found["bf16_ops_per_s"]
             else "not measured: cuBLAS is not there"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
