#define WARP 32
#define MOST_THREADS 256
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

// The fold of one number of each thread along y, for all of them. Of one position it is by halves in each warp, then warp after warp.
template <typename Fold> DEVICE Number across(Number x) {
    __shared__ Number all[MOST_THREADS];
    const int columns = blockDim.x;
    int rows = blockDim.y, row = threadIdx.y;
    bool is_first = true;
    if (columns == 1) {
        for (int offset = WARP / 2; offset > 0; offset /= 2) x = Fold::of(x, __shfl_down_sync(0xffffffffu, x, offset));
        is_first = row % WARP == 0, row /= WARP, rows /= WARP;
    }
    __syncthreads();
    if (is_first) all[row * columns + threadIdx.x] = x;
    __syncthreads();
    x = all[threadIdx.x];
    for (int other = 1; other < rows; other++) x = Fold::of(x, all[other * columns + threadIdx.x]);
    return x;
}

// Where blocks that share a loop leave what each of them has found; `at` is the number of that loop, −1 where one block does all.
struct Split {
    Number *partial;
    int at, parts;

    template <typename Index> DEVICE Number *of(int fold, int part, Index unit, Index units) const {
        return partial + ((size_t)fold * parts + part) * units + unit;
    }
};
