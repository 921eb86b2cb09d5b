// Products of matrices by a block of threads, for kernels that read their factors, or store the product, in a way of their own:
// `#include "opsmith_gemm.cuh"`. Where both are tensors, `CudaCall::gemm` launches a kernel that has this.
#pragma once
#include "opsmith.cuh"

// A card's own instructions: `ldmatrix`, and `mma` of 16 × 8 sums and 16 terms, which compute capability 8.0 is the first to have.
#ifndef OPSMITH_TENSOR_CORES
#define OPSMITH_TENSOR_CORES (__CUDA_ARCH__ >= 800)
#define OPSMITH_LOAD_MATRICES_4(to, turned, row)                                                       \
    if (turned)                                                                                        \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"          \
                     : "=r"((to)[0]), "=r"((to)[1]), "=r"((to)[2]), "=r"((to)[3])                      \
                     : "r"((unsigned)__cvta_generic_to_shared(row)));                                  \
    else                                                                                               \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"                \
                     : "=r"((to)[0]), "=r"((to)[1]), "=r"((to)[2]), "=r"((to)[3])                      \
                     : "r"((unsigned)__cvta_generic_to_shared(row)))
#define OPSMITH_LOAD_MATRICES_2(to, turned, row)                                                       \
    if (turned)                                                                                        \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"                  \
                     : "=r"((to)[0]), "=r"((to)[1])                                                    \
                     : "r"((unsigned)__cvta_generic_to_shared(row)));                                  \
    else                                                                                               \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"                        \
                     : "=r"((to)[0]), "=r"((to)[1])                                                    \
                     : "r"((unsigned)__cvta_generic_to_shared(row)))
#define OPSMITH_ADD_PRODUCT(T, sums, a, b) opsmith::TensorCores<T>::add(sums, a, b)
#endif

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

// A factor of a product: the strides of its rows, or columns, and of the terms, and how many rows or columns are left.
template <typename T, typename Index> struct Factor {
    const T *data;
    Index side, term, sides;
};

#if OPSMITH_TENSOR_CORES
#ifdef __CUDA_ARCH__
template <typename T> struct TensorCores;
#define OPSMITH_ADD_PRODUCT_OF(Type, name)                                                             \
    template <> struct TensorCores<Type> {                                                             \
        static OPSMITH_INLINE void add(float *sums, const unsigned *a, const unsigned *b) {            \
            asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "                         \
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                      \
                : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                           \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                   \
        }                                                                                              \
    }
OPSMITH_ADD_PRODUCT_OF(half, "f16");
OPSMITH_ADD_PRODUCT_OF(bfloat16, "bf16");
#undef OPSMITH_ADD_PRODUCT_OF
#endif

// As `BlockProduct`, of numbers of 16 bits on tensor cores: a block's eight warps lie in two rows of four. Factors are tensors.
template <typename T, int EDGE> struct TensorProduct {
    static constexpr int ROWS = 16 * EDGE, COLUMNS = ROWS, DEPTH = 32, THREADS = 256;
    static constexpr int HEIGHT = EDGE / 2, WIDTH = EDGE / 2;   // products of 16 × 8 sums that a warp has
    static constexpr int PACK = 16 / sizeof(T), PACKS = ROWS * DEPTH / PACK, TURNS = ceil_div(PACKS, THREADS);
    static constexpr int GAP = 8;   // for lines of eight packs to lie in banks of their own

    float sums[EDGE][EDGE];

    OPSMITH_INLINE TensorProduct() {
#pragma unroll
        for (int i = 0; i < EDGE; i++)
#pragma unroll
            for (int j = 0; j < EDGE; j++) sums[i][j] = 0;
    }

    // As `BlockProduct::add`. Every thread of the block has to come here.
    template <bool A_ROWS, bool B_COLUMNS, typename Index>
    OPSMITH_INLINE void add(Index depth, const Factor<T, Index> &a, const Factor<T, Index> &b) {
        __shared__ Tile<A_ROWS> as[2];
        __shared__ Tile<B_COLUMNS> bs[2];
        if (depth <= 0) return;
        const bool a_packed = is_packed<A_ROWS>(a), b_packed = is_packed<B_COLUMNS>(b);
        Pack next_a[TURNS], next_b[TURNS];
        auto fetch = [&](Index k0) {
            as[0].fetch(next_a, a, k0, depth, a_packed);
            bs[0].fetch(next_b, b, k0, depth, b_packed);
        };
        auto keep = [&](int half, Index k0) {
            as[half].keep(next_a, a, k0, depth, a_packed);
            bs[half].keep(next_b, b, k0, depth, b_packed);
        };
        fetch(0);
        keep(0, 0);
        __syncthreads();
        int half = 0;
        for (Index k0 = 0; k0 < depth; k0 += DEPTH, half ^= 1) {
            const bool more = depth - k0 > DEPTH;
            if (more) fetch(k0 + DEPTH);
#pragma unroll 1
            for (int k = 0; k < DEPTH; k += 16) multiply(as[half], bs[half], k);
            if (more) keep(half ^ 1, k0 + DEPTH);
            __syncthreads();
        }
    }

    // The row and the column in the tile of the thread's numbers.
    static OPSMITH_INLINE int row(int i) { return first_row() + i / 2 * 16 + i % 2 * 8 + lane() / 4; }
    static OPSMITH_INLINE int column(int j) { return first_column() + j / 2 * 8 + lane() % 4 * 2 + j % 2; }

private:
    struct alignas(16) Pack {
        T lane[PACK];
    };

    static OPSMITH_INLINE int thread() { return threadIdx.y * blockDim.x + threadIdx.x; }
    static OPSMITH_INLINE int lane() { return thread() % 32; }
    static OPSMITH_INLINE int first_row() { return thread() / 32 / 4 * HEIGHT * 16; }
    static OPSMITH_INLINE int first_column() { return thread() / 32 % 4 * WIDTH * 8; }

    // A part of a factor in shared memory, as it lies in the tensor: lines of rows or columns side by side, or of terms.
    template <bool SIDES> struct Tile {
        static constexpr int LINE = SIDES ? ROWS : DEPTH, LINES = SIDES ? DEPTH : ROWS;

        alignas(16) T lines[LINES][LINE + GAP];

        // A pack of the tile: where it begins, and how much of it, along the line, the factor has; none where it lies outside.
        template <typename Index> struct Place {
            const int line, place;
            Index side, term, left;

            OPSMITH_INLINE Place(int pack, const Factor<T, Index> &factor, Index k0, Index depth)
                : line(pack / (LINE / PACK)), place(pack % (LINE / PACK) * PACK) {
                side = SIDES ? place : line, term = k0 + (SIDES ? line : place);
                const bool is_there = pack < PACKS && side < factor.sides && term < depth;
                left = !is_there ? 0 : SIDES ? factor.sides - side : depth - term;
            }
            OPSMITH_INLINE const T *from(const Factor<T, Index> &factor) const {
                return factor.data + side * factor.side + term * factor.term;
            }
        };

        // Reads whole packs, on the way while the tile before is computed with.
        template <typename Index>
        static OPSMITH_INLINE void fetch(Pack *packs, const Factor<T, Index> &factor, Index k0, Index depth, bool packed) {
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                const Place<Index> place(thread() + turn * THREADS, factor, k0, depth);
                if (packed && place.left >= PACK) packs[turn] = *(const Pack *)place.from(factor);
            }
        }

        // Stores them, and the numbers of others one by one: zero where the factor ends.
        template <typename Index>
        OPSMITH_INLINE void keep(const Pack *packs, const Factor<T, Index> &factor, Index k0, Index depth, bool packed) {
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                const int pack = thread() + turn * THREADS;
                const Place<Index> place(pack, factor, k0, depth);
                if (pack >= PACKS) break;
                T *to = &lines[place.line][place.place];
                if (packed && place.left >= PACK) {
                    *(Pack *)to = packs[turn];
                    continue;
                }
                const Index step = SIDES ? factor.side : factor.term;
#pragma unroll 1
                for (int e = 0; e < PACK; e++) {
                    if (e < place.left) to[e] = place.from(factor)[e * step];
                    else to[e].bits = 0;
                }
            }
        }

        // Where `side` and `term` are.
        OPSMITH_INLINE const T *at(int side, int term) const { return &lines[SIDES ? term : side][SIDES ? side : term]; }
    };

    // Whether packs of a factor can be read at once.
    template <bool SIDES, typename Index> static OPSMITH_INLINE bool is_packed(const Factor<T, Index> &factor) {
        const Index along = SIDES ? factor.side : factor.term, across = SIDES ? factor.term : factor.side;
        return along == 1 && across % PACK == 0 && (unsigned long long)factor.data % sizeof(Pack) == 0;
    }

    // Adds the products of 16 terms from `k` on.
    template <bool A_ROWS, bool B_COLUMNS>
    OPSMITH_INLINE void multiply(const Tile<A_ROWS> &as, const Tile<B_COLUMNS> &bs, int k) {
        unsigned a[HEIGHT][4];
        // Each thread names a line of one of the matrices of 8 × 8 numbers.
        const int matrix = lane() / 8, line = lane() % 8, lower = matrix % 2 * 8, later = matrix / 2 * 8;
#pragma unroll
        for (int i = 0; i < HEIGHT; i++) {
            const int r = first_row() + i * 16 + lower;
            OPSMITH_LOAD_MATRICES_4(a[i], A_ROWS, A_ROWS ? as.at(r, k + later + line) : as.at(r + line, k + later));
        }
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            const int c = first_column() + j * 8;   // the later terms' matrix is the second one here
            unsigned b[2];
            OPSMITH_LOAD_MATRICES_2(b, B_COLUMNS, B_COLUMNS ? bs.at(c, k + lower + line) : bs.at(c + line, k + lower));
#pragma unroll
            for (int i = 0; i < HEIGHT; i++) {
                float own[4] = {sums[2 * i][2 * j], sums[2 * i][2 * j + 1], sums[2 * i + 1][2 * j], sums[2 * i + 1][2 * j + 1]};
                OPSMITH_ADD_PRODUCT(T, own, a[i], b);
                sums[2 * i][2 * j] = own[0], sums[2 * i][2 * j + 1] = own[1];
                sums[2 * i + 1][2 * j] = own[2], sums[2 * i + 1][2 * j + 1] = own[3];
            }
        }
    }
};
#endif

}  // namespace opsmith
