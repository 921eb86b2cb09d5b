// A step of the recurrent cell in one launch, and its gradients in three: what is between the products of matrices is done
// before they are stored, or by the kernel that makes what the others read.
#include "opsmith_gemm.cuh"

using opsmith::PackedAccessor;

template <typename T> OPSMITH_INLINE T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

// gates = [old_h, input] · weightsᵀ + bias, and all that follows from them. A block has EDGE_ROWS · 16 rows of the batch and
// EDGE · 16 columns of the state, with all three gates of each; those of the first columns write `x` too.
template <typename T, typename Index, int EDGE_ROWS, int EDGE, int DEPTH>
__global__ void __launch_bounds__(256) forward(
    PackedAccessor<const T, 2, Index> input, PackedAccessor<const T, 2, Index> weights, PackedAccessor<const T, 1, Index> bias,
    PackedAccessor<const T, 2, Index> old_h, PackedAccessor<const T, 2, Index> old_cell, PackedAccessor<T, 2, Index> new_h,
    PackedAccessor<T, 2, Index> new_cell, PackedAccessor<T, 2, Index> input_gate, PackedAccessor<T, 2, Index> output_gate,
    PackedAccessor<T, 2, Index> candidate_cell, PackedAccessor<T, 2, Index> x, PackedAccessor<T, 2, Index> gates) {
    typedef opsmith::BlockProduct<T, EDGE_ROWS, 3 * EDGE, DEPTH> Product;
    constexpr int COLUMNS = Product::SIDE * EDGE;
    const Index size = old_h.size(1), depth = x.size(1);
    const Index across = size > 0 ? opsmith::ceil_div(size, (Index)COLUMNS) : 1;
    const Index i0 = (Index)blockIdx.x / across * Product::ROWS, j0 = (Index)blockIdx.x % across * COLUMNS;
    const Index rows = x.size(0) - i0, columns = size - j0;
    auto read = [&](int r, Index k) { return k < size ? old_h[i0 + r][k] : input[i0 + r][k - size]; };
    if (j0 == 0) {
        for (int r = threadIdx.y; r < Product::ROWS && r < rows; r += blockDim.y)
            for (Index k = threadIdx.x; k < depth; k += blockDim.x) x[i0 + r][k] = read(r, k);
    }
    Product product;
    product.template add<false, false>(
        depth, [&](int r, Index k) { return r < rows ? read(r, k) : T(0); },
        [&](Index k, int c) { return c % COLUMNS < columns ? weights[c / COLUMNS * size + j0 + c % COLUMNS][k] : T(0); });
#pragma unroll
    for (int i = 0; i < EDGE_ROWS; i++) {
        const int r = Product::row(i);
        if (r >= rows) break;
#pragma unroll
        for (int e = 0; e < EDGE; e++) {
            const int c = Product::column(e);
            if (c >= columns) break;
            const Index row = i0 + r, column = j0 + c;
            const T g0 = product.sums[i][e] + bias[column];
            const T g1 = product.sums[i][EDGE + e] + bias[size + column];
            const T g2 = product.sums[i][2 * EDGE + e] + bias[2 * size + column];
            const T in = sigmoid(g0), out = sigmoid(g1), candidate = g2 >= 0 ? g2 : expm1(g2);
            const T cell = old_cell[row][column] + candidate * in;
            gates[row][column] = g0, gates[row][size + column] = g1, gates[row][2 * size + column] = g2;
            input_gate[row][column] = in, output_gate[row][column] = out, candidate_cell[row][column] = candidate;
            new_cell[row][column] = cell;
            new_h[row][column] = tanh(cell) * out;
        }
    }
}

// The gradients of the gates, side by side in rows of `gates_grad`, and of the old state; either may be absent.
template <typename T, typename Index>
__global__ void elements(
    PackedAccessor<const T, 2, Index> new_h_grad, PackedAccessor<const T, 2, Index> new_cell_grad,
    PackedAccessor<const T, 2, Index> new_cell, PackedAccessor<const T, 2, Index> input_gate,
    PackedAccessor<const T, 2, Index> output_gate, PackedAccessor<const T, 2, Index> candidate_cell,
    PackedAccessor<const T, 2, Index> gates, T *gates_grad, T *old_cell_grad) {
    const Index size = new_cell.size(1);
    OPSMITH_GRID_LOOP(Index, at, new_cell.size(0) * size) {
        const Index row = at / size, column = at % size;
        const T h_grad = new_h_grad[row][column], in = input_gate[row][column], out = output_gate[row][column];
        const T hyperbolic = tanh(new_cell[row][column]);
        const T cell_grad = (T(1) - hyperbolic * hyperbolic) * out * h_grad + new_cell_grad[row][column];
        if (old_cell_grad) old_cell_grad[at] = cell_grad;
        if (gates_grad) {
            // Of the gates' own values, as σ′ = σ (1 − σ); of the candidate's, 1 + elu would lose what is left of eᶻ.
            const T g2 = gates[row][2 * size + column];
            T *own = gates_grad + row * 3 * size + column;
            own[0] = candidate_cell[row][column] * cell_grad * in * (T(1) - in);
            own[size] = hyperbolic * h_grad * out * (T(1) - out);
            own[2 * size] = in * cell_grad * (g2 >= 0 ? T(1) : exp(g2));
        }
    }
}

// gates_grad · weights, whose first columns are the gradient of `old_h` and the others that of `input`; the columns from
// `begin` to `end` are wanted.
template <typename T, typename Index, int EDGE, int DEPTH>
__global__ void __launch_bounds__(256) inputs(
    PackedAccessor<const T, 2, Index> gates_grad, PackedAccessor<const T, 2, Index> weights, Index begin, Index end,
    T *old_h_grad, T *input_grad) {
    typedef opsmith::BlockProduct<T, EDGE, EDGE, DEPTH> Product;
    const Index across = opsmith::ceil_div(end - begin, (Index)Product::COLUMNS);
    const Index i0 = (Index)blockIdx.x / across * Product::ROWS, j0 = begin + (Index)blockIdx.x % across * Product::COLUMNS;
    const Index rows = gates_grad.size(0) - i0, columns = end - j0;
    Product product;
    product.template add<false, true>(
        gates_grad.size(1), [&](int r, Index k) { return r < rows ? gates_grad[i0 + r][k] : T(0); },
        [&](Index k, int c) { return c < columns ? weights[k][j0 + c] : T(0); });
    const Index size = gates_grad.size(1) / 3, features = weights.size(1) - size;
#pragma unroll
    for (int i = 0; i < EDGE; i++) {
        const int r = Product::row(i);
        if (r >= rows) break;
#pragma unroll
        for (int j = 0; j < EDGE; j++) {
            const Index column = j0 + Product::column(j);
            if (column >= end) break;
            if (column < size) old_h_grad[(i0 + r) * size + column] = product.sums[i][j];
            else input_grad[(i0 + r) * features + column - size] = product.sums[i][j];
        }
    }
}

// gates_gradᵀ · x, the gradient of the weights, where `x` has a column of ones behind it, for the bias; the columns from `begin`
// to `end` are wanted.
template <typename T, typename Index, int EDGE, int DEPTH>
__global__ void __launch_bounds__(256) parameters(
    PackedAccessor<const T, 2, Index> gates_grad, PackedAccessor<const T, 2, Index> x, Index begin, Index end, T *weights_grad,
    T *bias_grad) {
    typedef opsmith::BlockProduct<T, EDGE, EDGE, DEPTH> Product;
    const Index across = opsmith::ceil_div(end - begin, (Index)Product::COLUMNS);
    const Index i0 = (Index)blockIdx.x / across * Product::ROWS, j0 = begin + (Index)blockIdx.x % across * Product::COLUMNS;
    const Index rows = gates_grad.size(1) - i0, columns = end - j0, ones = x.size(1);
    Product product;
    product.template add<true, true>(
        x.size(0), [&](int r, Index k) { return r < rows ? gates_grad[k][i0 + r] : T(0); },
        [&](Index k, int c) { return c >= columns ? T(0) : j0 + c == ones ? T(1) : x[k][j0 + c]; });
#pragma unroll
    for (int i = 0; i < EDGE; i++) {
        const int r = Product::row(i);
        if (r >= rows) break;
#pragma unroll
        for (int j = 0; j < EDGE; j++) {
            const Index column = j0 + Product::column(j);
            if (column >= end) break;
            if (column == ones) bias_grad[i0 + r] = product.sums[i][j];
            else weights_grad[(i0 + r) * ones + column] = product.sums[i][j];
        }
    }
}
