// Products of matrices of integers, or of stacks of them, of any strides. Sums and products wrap around, so types without a sign stand
// for those as large with one.
#include "opsmith_gemm.cuh"

// What numbers are computed in: smaller ones would be as others with a sign, which must not overflow.
template <typename T> struct Wrapping { typedef unsigned type; };
template <> struct Wrapping<unsigned long long> { typedef unsigned long long type; };

// How far the rows, and the columns, of a matrix are from each other.
template <typename Index> struct Steps {
    Index row, column;
};

// Blocks along x are the tiles of a matrix, row after row of them; along y the matrices. `A_ROWS` and `B_COLUMNS` are those of
// `BlockProduct`. The operands of `kept` are a, b and c, by the first elements of matrices.
template <typename T, typename Index, int EDGE, bool A_ROWS, bool B_COLUMNS>
__global__ void __launch_bounds__(256) product(
    const T *a, const T *b, T *c, Index rows, Index columns, Index depth, Steps<Index> of_a, Steps<Index> of_b, Steps<Index> of_c,
    opsmith::Space<Index, 3> kept) {
    typedef typename Wrapping<T>::type W;
    typedef opsmith::BlockProduct<W, EDGE, EDGE> Product;
    const Index across = opsmith::ceil_div(columns, (Index)Product::COLUMNS);
    const Index i0 = (Index)blockIdx.x / across * Product::ROWS, j0 = (Index)blockIdx.x % across * Product::COLUMNS;
    for (Index s = blockIdx.y; s < kept.count; s += gridDim.y) {
        const auto places = kept[s];
        const T *x = a + places.at[0] + i0 * of_a.row, *y = b + places.at[1] + j0 * of_b.column;
        Product tile;
        tile.template add<A_ROWS, B_COLUMNS>(
            depth, [&](int r, Index k) { return r < rows - i0 ? (W)x[r * of_a.row + k * of_a.column] : W(0); },
            [&](Index k, int q) { return q < columns - j0 ? (W)y[k * of_b.row + q * of_b.column] : W(0); });
        T *own = c + places.at[2] + i0 * of_c.row + j0 * of_c.column;
#pragma unroll
        for (int i = 0; i < EDGE; i++) {
            const int r = Product::row(i);
            if (r >= rows - i0) break;
#pragma unroll
            for (int j = 0; j < EDGE; j++) {
                const int q = Product::column(j);
                if (q >= columns - j0) break;
                own[r * of_c.row + q * of_c.column] = (T)tile.sums[i][j];
            }
        }
    }
}
