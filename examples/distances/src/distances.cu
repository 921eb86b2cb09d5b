// Manhattan distances of all pairs of rows, and their gradients: register tiles fed from tiles in shared memory.
//
// Sums go along the rows, or over the other points, in one order that the sizes alone decide: results do not depend on the
// card or on chance.
#include "opsmith.cuh"

#define SIDE 16   // a block has SIDE x SIDE threads
#define DEPTH 16  // how many columns, or points, are in shared memory at a time

template <typename T> OPSMITH_INLINE T absolute(T x) { return x < 0 ? -x : x == 0 ? T(0) : x; }
template <> OPSMITH_INLINE float absolute(float x) { return fabsf(x); }
template <> OPSMITH_INLINE double absolute(double x) { return fabs(x); }

// 1 with the sign of d; 0 of 0, and NaN of NaN. A product with it is exact, so it costs nothing to add one up.
OPSMITH_INLINE float sign_of(float d) { return fabsf(d) > 0 ? copysignf(1, d) : d; }
OPSMITH_INLINE double sign_of(double d) { return fabs(d) > 0 ? copysign(1.0, d) : d; }

// The first row and the first column of a block's tile: tiles lie along x, row after row of them, as there are more blocks along x
// than along y.
template <int EDGE, typename Index> struct Tile {
    Index row, column;

    OPSMITH_INLINE explicit Tile(Index columns) {
        const Index across = opsmith::ceil_div(columns, (Index)(SIDE * EDGE));
        row = (Index)blockIdx.x / across * (SIDE * EDGE);
        column = (Index)blockIdx.x % across * (SIDE * EDGE);
    }
};

// Numbers that lie together in a tile of registers: quads, so that a thread reads shared memory 16 bytes at a time, and the
// threads of a warp neighbouring ones.
OPSMITH_INLINE constexpr int quad_place(int thread, int number) { return number / 4 * 4 * SIDE + thread * 4 + number % 4; }

// A tile of rows from `row` on and columns from `column` on, the columns outside, zero beyond the matrix.
template <int ROWS, typename T, typename Index>
OPSMITH_INLINE void load_columns(T (*tile)[ROWS + 4], const opsmith::PackedAccessor<const T, 2, Index> &m, Index row, Index column) {
    const int thread = threadIdx.y * SIDE + threadIdx.x;
#pragma unroll
    for (int at = thread; at < ROWS * DEPTH; at += SIDE * SIDE) {
        const int r = at / DEPTH, c = at % DEPTH;
        const bool inside = r < m.size(0) - row && c < m.size(1) - column;
        tile[c][r] = inside ? m[row + r][column + c] : T(0);
    }
}

// A tile of rows from `row` on and columns from `column` on as they lie, zero beyond the matrix.
template <int COLUMNS, typename T, typename Index>
OPSMITH_INLINE void load_rows(T (*tile)[COLUMNS + 4], const opsmith::PackedAccessor<const T, 2, Index> &m, Index row, Index column) {
    const int thread = threadIdx.y * SIDE + threadIdx.x;
#pragma unroll
    for (int at = thread; at < COLUMNS * DEPTH; at += SIDE * SIDE) {
        const int r = at / COLUMNS, c = at % COLUMNS;
        const bool inside = r < m.size(0) - row && c < m.size(1) - column;
        tile[r][c] = inside ? m[row + r][column + c] : T(0);
    }
}

// A tile of zeros.
template <int ROWS, typename T> OPSMITH_INLINE void clear(T (*tile)[ROWS + 4]) {
    for (int at = threadIdx.y * SIDE + threadIdx.x; at < ROWS * DEPTH; at += SIDE * SIDE) tile[at / ROWS][at % ROWS] = T(0);
}

// z[i][j] = Σₖ |x[i][k] − y[j][k]|, a block for (SIDE EDGE)² of them, a thread for EDGE².
template <typename T, typename Index, int EDGE>
__global__ void __launch_bounds__(SIDE * SIDE) distances(
    opsmith::PackedAccessor<const T, 2, Index> x, opsmith::PackedAccessor<const T, 2, Index> y,
    opsmith::PackedAccessor<T, 2, Index> z) {
    constexpr int ROWS = SIDE * EDGE;
    alignas(16) __shared__ T xs[DEPTH][ROWS + 4], ys[DEPTH][ROWS + 4];
    const Tile<EDGE, Index> tile(z.size(1));
    const Index i0 = tile.row, j0 = tile.column;
    T sums[EDGE][EDGE] = {};
    for (Index k0 = 0; k0 < x.size(1); k0 += DEPTH) {
        load_columns<ROWS>(xs, x, i0, k0);
        load_columns<ROWS>(ys, y, j0, k0);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            T a[EDGE], b[EDGE];
#pragma unroll
            for (int e = 0; e < EDGE; e++) {
                a[e] = xs[k][quad_place(threadIdx.y, e)];
                b[e] = ys[k][quad_place(threadIdx.x, e)];
            }
#pragma unroll
            for (int i = 0; i < EDGE; i++)
#pragma unroll
                for (int j = 0; j < EDGE; j++) sums[i][j] += absolute(a[i] - b[j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EDGE; i++)
#pragma unroll
        for (int j = 0; j < EDGE; j++) {
            const int r = quad_place(threadIdx.y, i), c = quad_place(threadIdx.x, j);
            if (r < z.size(0) - i0 && c < z.size(1) - j0) z[i0 + r][j0 + c] = sums[i][j];
        }
}

// a_grad[i][k] = Σⱼ g · sign(a[i][k] − b[j][k]), where g is z_grad[i][j], or z_grad[j][i] if the points `b` are its rows. A block is
// for (SIDE EDGE)² elements of a_grad, a thread for EDGE².
template <typename T, typename Index, int EDGE, bool B_ARE_ROWS>
__global__ void __launch_bounds__(SIDE * SIDE) gradient(
    opsmith::PackedAccessor<const T, 2, Index> a, opsmith::PackedAccessor<const T, 2, Index> b,
    opsmith::PackedAccessor<const T, 2, Index> z_grad, opsmith::PackedAccessor<T, 2, Index> a_grad) {
    constexpr int ROWS = SIDE * EDGE;
    alignas(16) __shared__ T gs[DEPTH][ROWS + 4], bs[DEPTH][ROWS + 4];
    const Tile<EDGE, Index> tile(a.size(1));
    const Index i0 = tile.row, k0 = tile.column;
    T own[EDGE][EDGE], sums[EDGE][EDGE] = {};
#pragma unroll
    for (int i = 0; i < EDGE; i++)
#pragma unroll
        for (int k = 0; k < EDGE; k++) {
            const int r = quad_place(threadIdx.y, i), c = quad_place(threadIdx.x, k);
            own[i][k] = r < a.size(0) - i0 && c < a.size(1) - k0 ? a[i0 + r][k0 + c] : T(0);
        }
    for (Index j0 = 0; j0 < b.size(0); j0 += DEPTH) {
        if (B_ARE_ROWS) load_rows<ROWS>(gs, z_grad, j0, i0);
        else load_columns<ROWS>(gs, z_grad, i0, j0);
        load_rows<ROWS>(bs, b, j0, k0);
        __syncthreads();
        // Beyond the last point g is 0, and 0 · (a − 0) would be NaN for an infinite a.
        const int count = b.size(0) - j0 < DEPTH ? (int)(b.size(0) - j0) : DEPTH;
        for (int j = 0; j < count; j++) {
            T g[EDGE], other[EDGE];
#pragma unroll
            for (int e = 0; e < EDGE; e++) {
                g[e] = gs[j][quad_place(threadIdx.y, e)];
                other[e] = bs[j][quad_place(threadIdx.x, e)];
            }
#pragma unroll
            for (int i = 0; i < EDGE; i++)
#pragma unroll
                for (int k = 0; k < EDGE; k++) sums[i][k] += sign_of(own[i][k] - other[k]) * g[i];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EDGE; i++)
#pragma unroll
        for (int k = 0; k < EDGE; k++) {
            const int r = quad_place(threadIdx.y, i), c = quad_place(threadIdx.x, k);
            if (r < a.size(0) - i0 && c < a.size(1) - k0) a_grad[i0 + r][k0 + c] = sums[i][k];
        }
}

// z_grad_grad[i][j] = Σₖ (x_grad_grad[i][k] − y_grad_grad[j][k]) · sign(x[i][k] − y[j][k]), where what is absent is zero. As `distances`.
template <typename T, typename Index, int EDGE>
__global__ void __launch_bounds__(SIDE * SIDE) second_order(
    opsmith::PackedAccessor<const T, 2, Index> x, opsmith::PackedAccessor<const T, 2, Index> y,
    opsmith::PackedAccessor<const T, 2, Index> x_grad_grad, bool has_x, opsmith::PackedAccessor<const T, 2, Index> y_grad_grad,
    bool has_y, opsmith::PackedAccessor<T, 2, Index> z_grad_grad) {
    constexpr int ROWS = SIDE * EDGE;
    alignas(16) __shared__ T xs[DEPTH][ROWS + 4], ys[DEPTH][ROWS + 4], us[DEPTH][ROWS + 4], vs[DEPTH][ROWS + 4];
    const Tile<EDGE, Index> tile(z_grad_grad.size(1));
    const Index i0 = tile.row, j0 = tile.column;
    T sums[EDGE][EDGE] = {};
    if (!has_x) clear<ROWS>(us);
    if (!has_y) clear<ROWS>(vs);
    for (Index k0 = 0; k0 < x.size(1); k0 += DEPTH) {
        load_columns<ROWS>(xs, x, i0, k0);
        load_columns<ROWS>(ys, y, j0, k0);
        if (has_x) load_columns<ROWS>(us, x_grad_grad, i0, k0);
        if (has_y) load_columns<ROWS>(vs, y_grad_grad, j0, k0);
        __syncthreads();
        const int count = x.size(1) - k0 < DEPTH ? (int)(x.size(1) - k0) : DEPTH;
        for (int k = 0; k < count; k++) {
            T a[EDGE], b[EDGE], u[EDGE], v[EDGE];
#pragma unroll
            for (int e = 0; e < EDGE; e++) {
                const int r = quad_place(threadIdx.y, e), c = quad_place(threadIdx.x, e);
                a[e] = xs[k][r], b[e] = ys[k][c], u[e] = us[k][r], v[e] = vs[k][c];
            }
#pragma unroll
            for (int i = 0; i < EDGE; i++)
#pragma unroll
                for (int j = 0; j < EDGE; j++) sums[i][j] += sign_of(a[i] - b[j]) * (u[i] - v[j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EDGE; i++)
#pragma unroll
        for (int j = 0; j < EDGE; j++) {
            const int r = quad_place(threadIdx.y, i), c = quad_place(threadIdx.x, j);
            if (r < z_grad_grad.size(0) - i0 && c < z_grad_grad.size(1) - j0) z_grad_grad[i0 + r][j0 + c] = sums[i][j];
        }
}
