#define WARP 32
#define MAX_WARPS 32
#define SIDE 16
#define EACH(n) _Pragma("unroll") for (int n = 0; n < EDGE; n++)

struct Operands { void *data[OPERANDS]; };

// An axis stands for the dims from first[axis] on, the batch for those from first[AXES] on, the last dim first. A stride is 0 where
// an operand is the same along a dim.
template <typename Index, typename Stride> struct Layout {
    Index units, size[AXES];
    int first[AXES + 2];
    Index dim[MAX_DIMS];
    Stride stride[OPERANDS][MAX_DIMS];
};

// How far an operand is at a position along an axis, or in the batch.
template <typename Index, typename Stride>
DEVICE Stride place(const Layout<Index, Stride> &layout, int operand, int axis, Index at) {
#ifdef FLAT
    if (axis < AXES) return (Stride)at * layout.stride[operand][axis];
#endif
    Stride sum = 0;
    const int end = layout.first[axis + 1];
    for (int d = layout.first[axis]; d < end; d++) {
        if (d + 1 == end) return sum + (Stride)at * layout.stride[operand][d];
        sum += (Stride)(at % layout.dim[d]) * layout.stride[operand][d];
        at /= layout.dim[d];
    }
    return sum;
}

template <typename Index> DEVICE Index least(Index a, Index b) { return a < b ? a : b; }

// What a sum rounds off is known exactly (D. Knuth), and kept.
DEVICE void add(Number x, Number &total, Number &lost) {
    const Number sum = total + x, of_x = sum - total;
    lost += (total - (sum - of_x)) + (x - of_x);
    total = sum;
}

// Of an infinite sum nothing is lost, and what was computed for it is no number.
DEVICE Number summed(Number total, Number lost) { return lost == lost ? total + lost : total; }

// NaN goes through, as on the CPU.
struct Sum { DEVICE static Number of(Number a, Number b) { return a + b; } };
struct Max { DEVICE static Number of(Number a, Number b) { return (a >= b || a != a) ? a : b; } };
struct Min { DEVICE static Number of(Number a, Number b) { return (a <= b || a != a) ? a : b; } };
struct Product { DEVICE static Number of(Number a, Number b) { return a * b; } };

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
