// Products of matrices by a block of threads, for kernels that read their factors, or store the product, in a way of their own:
// `#include "opsmith_gemm.cuh"`. Where both are tensors, `CudaCall::gemm` launches a kernel that has this.
#pragma once
#include "opsmith.cuh"

namespace opsmith {

// A tile of a product that a block of 16 × 16 threads computes, each thread `A` of its rows times `B` of its columns, fed from
// shared memory, where `DEPTH` terms are at a time: small tiles, of which there are few, wait less with more of them. `T` is the
// type that it is computed in.
template <typename T, int A, int B, int DEPTH = 16> struct BlockProduct {
    static constexpr int SIDE = 16;   // a block has SIDE × SIDE threads, a multiple of DEPTH
    static constexpr int LOADS_A = A * DEPTH / SIDE, LOADS_B = B * DEPTH / SIDE;   // numbers that a thread fetches at a time
    static constexpr int ROWS = SIDE * A, COLUMNS = SIDE * B;

    T sums[A][B];

    OPSMITH_INLINE BlockProduct() {
#pragma unroll
        for (int i = 0; i < A; i++)
#pragma unroll
            for (int j = 0; j < B; j++) sums[i][j] = T(0);
    }

    // Adds Σₖ a(r, k) b(k, c) for `depth` terms, where r and c count from the tile's first. What lies outside of the factors is
    // zero. `A_ROWS` says that neighbouring threads are to read neighbouring rows of `a`, for they lie side by side in memory, and
    // `B_COLUMNS` the same of columns of `b`; else they read along k. Every thread of the block has to come here.
    template <bool A_ROWS, bool B_COLUMNS, typename Index, typename FactorA, typename FactorB>
    OPSMITH_INLINE void add(Index depth, FactorA a, FactorB b) {
        alignas(16) __shared__ T as[2][DEPTH][ROWS + 4], bs[2][DEPTH][COLUMNS + 4];
        const int thread = threadIdx.y * SIDE + threadIdx.x;
        T next_a[LOADS_A], next_b[LOADS_B];
        // The tiles are filled in turns: what comes next is on its way while the present one is computed with.
        auto fetch = [&](Index k0) {
            const Index left = depth - k0;
#pragma unroll
            for (int e = 0; e < LOADS_A; e++) {
                const int r = along<A_ROWS, ROWS>(thread, e), k = across<A_ROWS, ROWS>(thread, e);
                next_a[e] = k < left ? a(r, k0 + k) : T(0);
            }
#pragma unroll
            for (int e = 0; e < LOADS_B; e++) {
                const int c = along<B_COLUMNS, COLUMNS>(thread, e), k = across<B_COLUMNS, COLUMNS>(thread, e);
                next_b[e] = k < left ? b(k0 + k, c) : T(0);
            }
        };
        auto keep = [&](int half) {
#pragma unroll
            for (int e = 0; e < LOADS_A; e++) as[half][across<A_ROWS, ROWS>(thread, e)][along<A_ROWS, ROWS>(thread, e)] = next_a[e];
#pragma unroll
            for (int e = 0; e < LOADS_B; e++)
                bs[half][across<B_COLUMNS, COLUMNS>(thread, e)][along<B_COLUMNS, COLUMNS>(thread, e)] = next_b[e];
        };
        if (depth <= 0) return;
        fetch(0);
        keep(0);
        __syncthreads();
        int half = 0;
        for (Index k0 = 0; k0 < depth; k0 += DEPTH, half ^= 1) {
            const bool more = depth - k0 > DEPTH;
            if (more) fetch(k0 + DEPTH);
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
                T x[A], y[B];
#pragma unroll
                for (int i = 0; i < A; i++) x[i] = as[half][k][row(i)];
#pragma unroll
                for (int j = 0; j < B; j++) y[j] = bs[half][k][column(j)];
#pragma unroll
                for (int i = 0; i < A; i++)
#pragma unroll
                    for (int j = 0; j < B; j++) sums[i][j] += x[i] * y[j];
            }
            if (more) keep(half ^ 1);
            __syncthreads();
        }
    }

    // The row and the column in the tile of the thread's numbers.
    static OPSMITH_INLINE int row(int i) { return place<A>(threadIdx.y, i); }
    static OPSMITH_INLINE int column(int j) { return place<B>(threadIdx.x, j); }

private:
    // Which row or column of a factor, and which term, a thread fetches.
    template <bool SIDE_BY_SIDE, int SIZE> static OPSMITH_INLINE int along(int thread, int e) {
        return SIDE_BY_SIDE ? (thread + e * SIDE * SIDE) % SIZE : thread / DEPTH + e * (SIDE * SIDE / DEPTH);
    }
    template <bool SIDE_BY_SIDE, int SIZE> static OPSMITH_INLINE int across(int thread, int e) {
        return SIDE_BY_SIDE ? (thread + e * SIDE * SIDE) / SIZE : thread % DEPTH;
    }

    // Numbers of a thread lie together as far as shared memory is read at once, and beside those of the next thread.
    template <int EDGE> static OPSMITH_INLINE int place(int thread, int number) {
        constexpr int TOGETHER = EDGE % 4 == 0 ? 4 : EDGE % 2 == 0 ? 2 : 1;
        return number / TOGETHER * TOGETHER * SIDE + thread * TOGETHER + number % TOGETHER;
    }
};

}  // namespace opsmith
