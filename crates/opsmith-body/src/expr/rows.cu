#define WARP 32
#define MAX_WARPS 32

// The last dim first; a stride is 0 where an operand is broadcast, and along a row where there is one number for it.
template <typename Index, typename Stride> struct Layout {
    Index rows, length;
    int row_rank, rank;
    Index row_dim[MAX_RANK], dim[MAX_RANK];
    Stride row_stride[OPERANDS][MAX_RANK], stride[OPERANDS][MAX_RANK];
};

// NaN goes through, as on the CPU.
struct Sum { DEVICE static Number of(Number a, Number b) { return a + b; } };
struct Max { DEVICE static Number of(Number a, Number b) { return (a >= b || a != a) ? a : b; } };
struct Min { DEVICE static Number of(Number a, Number b) { return (a <= b || a != a) ? a : b; } };

// The fold of one number of each thread, for all threads: by halves in each warp, then warp after warp.
template <typename Fold> DEVICE Number across(Number x) {
    __shared__ Number warps[MAX_WARPS];
    for (int offset = WARP / 2; offset > 0; offset /= 2) x = Fold::of(x, __shfl_down_sync(0xffffffffu, x, offset));
    __syncthreads();
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = x;
    __syncthreads();
    x = warps[0];
    for (int warp = 1; warp < blockDim.x / WARP; warp++) x = Fold::of(x, warps[warp]);
    return x;
}

