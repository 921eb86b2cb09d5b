// What CUDA kernels of an Opsmith library are written with: accessors of tensors, helpers for grids, half precision and
// sums over a block. NVRTC finds this file by its name, `#include "opsmith.cuh"`; it needs no other header.
#pragma once

#ifdef __CUDACC_RTC__
#define OPSMITH_INLINE __device__ __forceinline__
#else
#define OPSMITH_INLINE __device__ inline
#endif

// Memory shared by a block whose size the launch says: `OPSMITH_DYNAMIC_SHARED(float, tile);`.
#ifndef OPSMITH_DYNAMIC_SHARED
#define OPSMITH_DYNAMIC_SHARED(T, name)                                \
    extern __shared__ unsigned char opsmith_dynamic_shared_memory[];   \
    T *const name = (T *)opsmith_dynamic_shared_memory
#endif

// A card's own instructions.
#ifndef OPSMITH_FLOAT_TO_HALF
#define OPSMITH_FLOAT_TO_HALF(bits, x) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x))
#define OPSMITH_HALF_TO_FLOAT(x, bits) asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits))
#endif

namespace opsmith {

// One dim fewer of a tensor: `a[i]` of an accessor `a` with at least two dims.
template <typename T, int N, typename Index> struct Row {
    T *data_;
    const Index *sizes_, *strides_;

    OPSMITH_INLINE Row<T, N - 1, Index> operator[](Index i) const {
        return {data_ + i * strides_[0], sizes_ + 1, strides_ + 1};
    }
    OPSMITH_INLINE Index size(int dim) const { return sizes_[dim]; }
    OPSMITH_INLINE Index stride(int dim) const { return strides_[dim]; }
    OPSMITH_INLINE T *data() const { return data_; }
};

template <typename T, typename Index> struct Row<T, 1, Index> {
    T *data_;
    const Index *sizes_, *strides_;

    OPSMITH_INLINE T &operator[](Index i) const { return data_[i * strides_[0]]; }
    OPSMITH_INLINE Index size(int dim) const { return sizes_[dim]; }
    OPSMITH_INLINE Index stride(int dim) const { return strides_[dim]; }
    OPSMITH_INLINE T *data() const { return data_; }
};

// A tensor of N dims as a kernel's parameter, by value: `a[i][j]`, `a.size(0)`, `a.stride(1)`. Strides are in elements, of
// any sign, and 0 where an element is repeated; `const T` where it is only read. The launch packs it (`Args::tensor`).
template <typename T, int N, typename Index> struct PackedAccessor {
    T *data_;
    Index sizes_[N], strides_[N];

    OPSMITH_INLINE Row<T, N - 1, Index> operator[](Index i) const {
        return {data_ + i * strides_[0], sizes_ + 1, strides_ + 1};
    }
    OPSMITH_INLINE Index size(int dim) const { return sizes_[dim]; }
    OPSMITH_INLINE Index stride(int dim) const { return strides_[dim]; }
    OPSMITH_INLINE T *data() const { return data_; }
};

template <typename T, typename Index> struct PackedAccessor<T, 1, Index> {
    T *data_;
    Index sizes_[1], strides_[1];

    OPSMITH_INLINE T &operator[](Index i) const { return data_[i * strides_[0]]; }
    OPSMITH_INLINE Index size(int dim) const { return sizes_[dim]; }
    OPSMITH_INLINE Index stride(int dim) const { return strides_[dim]; }
    OPSMITH_INLINE T *data() const { return data_; }
};

template <typename T, typename Index> struct PackedAccessor<T, 0, Index> {
    T *data_;

    OPSMITH_INLINE T &operator*() const { return *data_; }
    OPSMITH_INLINE T *data() const { return data_; }
};

// With indices of 32 bits, which a card computes with faster, and of 64, which every tensor fits.
template <typename T, int N> using PackedAccessor32 = PackedAccessor<T, N, int>;
template <typename T, int N> using PackedAccessor64 = PackedAccessor<T, N, long long>;

// A tensor of any number of dims, up to 8, gone through by the row-major index of its elements: `a[i]`.
template <typename T, typename Index> struct FlatAccessor {
    T *data_;
    Index count_;
    int rank_;   // 0 where the elements lie one after another
    Index sizes_[8], strides_[8];   // the last dim first

    OPSMITH_INLINE T &operator[](Index i) const {
        if (rank_ == 0) return data_[i];
        Index place = 0;
#pragma unroll
        for (int d = 0; d < 8; d++) {
            if (d == rank_) break;
            place += i % sizes_[d] * strides_[d];
            i /= sizes_[d];
        }
        return data_[place];
    }
    OPSMITH_INLINE Index count() const { return count_; }
    OPSMITH_INLINE T *data() const { return data_; }
};

template <typename Index> OPSMITH_INLINE constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

// A loop over `count` elements by a grid of one dim and any size: `OPSMITH_GRID_LOOP(Index, i, count) { … }`. What `i` goes on
// by may not fit a 32-bit index beyond the last element, so the rest is looked at instead.
template <typename Index> struct GridLoop {
    Index at_, count_, step_;
    bool more_;

    OPSMITH_INLINE explicit GridLoop(Index count) : count_(count) {
        const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
        more_ = first < (long long)count;
        at_ = more_ ? (Index)first : 0;
        const long long whole = (long long)gridDim.x * blockDim.x;
        step_ = whole < (long long)count ? (Index)whole : count;
    }
    OPSMITH_INLINE void next() {
        more_ = count_ - at_ > step_;
        if (more_) at_ += step_;
    }
};
#define OPSMITH_GRID_LOOP(Type, name, total)                                                              \
    for (opsmith::GridLoop<Type> opsmith_loop_(total); opsmith_loop_.more_; opsmith_loop_.next())          \
        if (const Type name = opsmith_loop_.at_; true)

// What is gone through, the last dim first, and how far the elements of each of N operands are from each other. A dense output
// needs no strides.
template <typename Index, int N> struct Space {
    Index count;
    int rank;
    Index dim[8], strides[N][8];

    struct Places {
        Index at[N];
    };

    OPSMITH_INLINE Places operator[](Index rest) const {
        Places places = {};
#pragma unroll
        for (int d = 0; d < 8; d++) {
            if (d == rank) break;
            const Index at = rest % dim[d];
            rest /= dim[d];
#pragma unroll
            for (int n = 0; n < N; n++) places.at[n] += at * strides[n][d];
        }
        return places;
    }
};

// float16 as it lies in memory; computed with as a float.
struct half {
    unsigned short bits;

    half() = default;
    OPSMITH_INLINE half(float x) { OPSMITH_FLOAT_TO_HALF(bits, x); }
    OPSMITH_INLINE operator float() const {
        float x;
        OPSMITH_HALF_TO_FLOAT(x, bits);
        return x;
    }
};

// bfloat16 as it lies in memory: the upper half of a float, rounded to nearest, ties to even.
struct bfloat16 {
    unsigned short bits;

    bfloat16() = default;
    OPSMITH_INLINE bfloat16(float x) {
        const unsigned all = __float_as_uint(x);
        bits = x != x ? 0x7fff : (unsigned short)((all + 0x7fff + (all >> 16 & 1)) >> 16);
    }
    OPSMITH_INLINE operator float() const { return __uint_as_float((unsigned)bits << 16); }
};

// The type that numbers of type T are computed in.
template <typename T> struct Wide { typedef T type; };
template <> struct Wide<half> { typedef float type; };
template <> struct Wide<bfloat16> { typedef float type; };
template <typename T> struct Wide<const T> : Wide<T> {};
template <typename T> using wide = typename Wide<T>::type;

// A float that rounds to the same 16 bits as the number itself: where it is not exact, the neighbour whose last bit is 1.
OPSMITH_INLINE float odd_float(double x) {
    const float nearest = (float)x;
    const double back = nearest;
    if (back == x || x != x) return nearest;
    const bool beyond = (back < 0 ? -back : back) > (x < 0 ? -x : x);
    return __uint_as_float((__float_as_uint(nearest) - beyond) | 1);
}
// A float number of double precision as T, rounded once.
template <typename T> OPSMITH_INLINE T rounded(double x) {
    if constexpr (sizeof(T) == 2) {
        return T(odd_float(x));
    } else {
        return (T)x;
    }
}

// The sum, or another fold, of one number of each thread of a block, for all its threads: in a fixed order. The block has a
// multiple of 32 threads, and all of them take part.
template <typename T, typename Fold> OPSMITH_INLINE T block_fold(T x, Fold fold) {
    __shared__ T warps[32];
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int count = blockDim.x * blockDim.y * blockDim.z / 32;
    for (int offset = 16; offset > 0; offset /= 2) x = fold(x, __shfl_down_sync(0xffffffffu, x, offset));
    __syncthreads();
    if (thread % 32 == 0) warps[thread / 32] = x;
    __syncthreads();
    x = warps[0];
    for (int warp = 1; warp < count; warp++) x = fold(x, warps[warp]);
    return x;
}
struct Add {
    template <typename T> OPSMITH_INLINE T operator()(T a, T b) const { return a + b; }
};
// The larger and the smaller one; NaN goes through.
struct Larger {
    template <typename T> OPSMITH_INLINE T operator()(T a, T b) const { return a >= b || a != a ? a : b; }
};
struct Smaller {
    template <typename T> OPSMITH_INLINE T operator()(T a, T b) const { return a <= b || a != a ? a : b; }
};
template <typename T> OPSMITH_INLINE T block_sum(T x) { return block_fold(x, Add()); }

}  // namespace opsmith
