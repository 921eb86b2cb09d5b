// Products of matrices, or of stacks of them, of any strides: c = alpha · Σ a · b + beta · c, where the sum goes over up to two
// pairs of factors, and over the dims of the stacks that c does not have.
#include "opsmith_gemm.cuh"

// The dims in front of the matrices: those that c has, or those that are summed over; the last first.
template <typename Index> struct Stack {
    Index count;
    int rank;
    Index dim[8];
};

// A stack of matrices: where it lies, and its strides.
template <typename T, typename Index> struct Matrices {
    T *data;
    Index row, column, kept[8], summed[8];
};

// Where a matrix of a stack begins.
template <typename Index> OPSMITH_INLINE Index place(const Stack<Index> &stack, const Index *strides, Index at) {
    Index place = 0;
#pragma unroll 1
    for (int d = 0; d < stack.rank; d++) {
        place += at % stack.dim[d] * strides[d];
        at /= stack.dim[d];
    }
    return place;
}

// How a block multiplies matrices of a type: numbers of 16 bits on tensor cores, where there are some.
template <typename T, int EDGE> struct Way {
    typedef opsmith::BlockProduct<opsmith::wide<T>, EDGE, EDGE> Product;

    template <bool A_ROWS, bool B_COLUMNS, typename Index>
    static OPSMITH_INLINE void add(
        Product &product, Index depth, const opsmith::Factor<T, Index> &a, const opsmith::Factor<T, Index> &b) {
        typedef opsmith::wide<T> W;
        product.template add<A_ROWS, B_COLUMNS>(
            depth, [&](int r, Index k) { return r < a.sides ? (W)a.data[r * a.side + k * a.term] : W(0); },
            [&](Index k, int c) { return c < b.sides ? (W)b.data[k * b.term + c * b.side] : W(0); });
    }
};
#if OPSMITH_TENSOR_CORES
template <typename T, int EDGE> struct OnTensorCores {
    typedef opsmith::TensorProduct<T, EDGE> Product;

    template <bool A_ROWS, bool B_COLUMNS, typename Index>
    static OPSMITH_INLINE void add(
        Product &product, Index depth, const opsmith::Factor<T, Index> &a, const opsmith::Factor<T, Index> &b) {
        product.template add<A_ROWS, B_COLUMNS>(depth, a, b);
    }
};
template <int EDGE> struct Way<opsmith::half, EDGE> : OnTensorCores<opsmith::half, EDGE> {};
template <int EDGE> struct Way<opsmith::bfloat16, EDGE> : OnTensorCores<opsmith::bfloat16, EDGE> {};
#endif

// Blocks along x are the tiles of a matrix, row after row of them; along y the matrices. `A_ROWS` and `B_COLUMNS` are those of
// `BlockProduct`. What is not unrolled would take registers from the tile.
template <typename T, typename Index, int EDGE, bool A_ROWS, bool B_COLUMNS>
__global__ void __launch_bounds__(256, sizeof(T) == 2 ? 2 : 1) gemm(
    Index rows, Index columns, Index depth, Stack<Index> kept, Stack<Index> summed, Matrices<const T, Index> a0,
    Matrices<const T, Index> b0, Matrices<const T, Index> a1, Matrices<const T, Index> b1, int pairs, Matrices<T, Index> c,
    opsmith::wide<T> alpha, opsmith::wide<T> beta) {
    typedef opsmith::wide<T> W;
    typedef typename Way<T, EDGE>::Product Product;
    const Index across = opsmith::ceil_div(columns, (Index)Product::COLUMNS);
    const Index i0 = (Index)blockIdx.x / across * Product::ROWS, j0 = (Index)blockIdx.x % across * Product::COLUMNS;
    for (Index s = blockIdx.y; s < kept.count; s += gridDim.y) {
        Product product;
#pragma unroll 1
        for (int pair = 0; pair < pairs; pair++)
#pragma unroll 1
            for (Index t = 0; t < summed.count; t++) {
                const Matrices<const T, Index> &of_a = pair ? a1 : a0, &of_b = pair ? b1 : b0;
                const T *a = of_a.data + place(kept, of_a.kept, s) + place(summed, of_a.summed, t) + i0 * of_a.row;
                const T *b = of_b.data + place(kept, of_b.kept, s) + place(summed, of_b.summed, t) + j0 * of_b.column;
                Way<T, EDGE>::template add<A_ROWS, B_COLUMNS, Index>(
                    product, depth, {a, of_a.row, of_a.column, rows - i0}, {b, of_b.column, of_b.row, columns - j0});
            }
        T *own = c.data + place(kept, c.kept, s) + i0 * c.row + j0 * c.column;
#pragma unroll
        for (int i = 0; i < EDGE; i++) {
            const int r = Product::row(i);
            if (r >= rows - i0) break;
            T *line = own + r * c.row;
#pragma unroll
            for (int j = 0; j < EDGE; j++) {
                const int q = Product::column(j);
                if (q >= columns - j0) break;
                const W sum = alpha * product.sums[i][j];
                line[q * c.column] = T(beta == 0 ? sum : sum + beta * (W)line[q * c.column]);
            }
        }
        if (kept.count - s <= gridDim.y) break;
    }
}
