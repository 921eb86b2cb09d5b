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

// An index without a sign, which is divided by sooner and holds some steps beyond the last index.
template <typename Index> struct Plain { typedef unsigned long long type; };
template <> struct Plain<int> { typedef unsigned type; };
template <typename Index> using plain = typename Plain<Index>::type;

// What is gone through, the last dim first, and how far the elements of each of N operands are from each other. A dense output
// needs no strides. Where `lanes` is more than 1, so many elements lie side by side, aligned, from each multiple of it on: of every
// operand whose first stride is not 0.
template <typename Index, int N> struct Space {
    Index count;
    int rank, lanes;
    Index dim[8], strides[N][8];

    struct Places {
        Index at[N];
    };

    OPSMITH_INLINE Places operator[](Index i) const {
        Places places = {};
        plain<Index> rest = (plain<Index>)i;
#pragma unroll
        for (int d = 0; d < 8; d++) {
            const bool is_last = d + 1 >= rank;
            const plain<Index> size = (plain<Index>)dim[d], next = is_last ? 0 : rest / size;
            const Index at = (Index)(rest - next * size);
#pragma unroll
            for (int n = 0; n < N; n++) places.at[n] += at * strides[n][d];
            if (is_last) break;
            rest = next;
        }
        return places;
    }
};

// So many elements, which are read and written at once.
template <typename T, int Lanes> struct alignas(sizeof(T) * Lanes < 16 ? sizeof(T) * Lanes : 16) Pack {
    T lane[Lanes];
};

// How many of the largest of these elements 16 bytes have.
template <typename... T> OPSMITH_INLINE constexpr int lanes_of() {
    const int sizes[] = {(int)sizeof(T)...};
    int most = 1;
    for (const int size : sizes) most = size > most ? size : most;
    return 16 / most;
}

// The elements of an operand from a place on, or the same one for all where its stride is 0.
template <int Lanes, typename T, typename Index> OPSMITH_INLINE Pack<T, Lanes> read(const T *from, Index place, Index stride) {
    if (Lanes > 1 && stride != 0) return *(const Pack<T, Lanes> *)(from + place);
    const T one = from[place];
    Pack<T, Lanes> pack;
#pragma unroll
    for (int l = 0; l < Lanes; l++) pack.lane[l] = one;
    return pack;
}
template <typename T, typename Index, int Lanes> OPSMITH_INLINE void write(T *to, Index place, const Pack<T, Lanes> &pack) {
    *(Pack<T, Lanes> *)(to + place) = pack;
}

// Goes over elements from `begin` on, so many at a time, with one or two of these in flight: what `work.read<Lanes>(i)` gives,
// `work.write<Lanes>(i, …)` gets.
template <int Lanes, int Flight, typename Index, typename Work> OPSMITH_INLINE void go_over(Index begin, Index count, const Work &work) {
    typedef plain<Index> Size;
    const Size packs = (Size)(count - begin) / Lanes, step = (Size)gridDim.x * blockDim.x;
    for (Size pack = (Size)blockIdx.x * blockDim.x + threadIdx.x; pack < packs; pack += Flight * step) {
        const Index at = (Index)((Size)begin + pack * Lanes), other = (Index)((Size)at + step * Lanes);
        const bool is_there = Flight > 1 && packs - pack > step;
        const auto held = work.template read<Lanes>(at);
        auto more = held;
        if (is_there) more = work.template read<Lanes>(other);
        work.template write<Lanes>(at, held);
        if (is_there) work.template write<Lanes>(other, more);
    }
}

// Goes over a space, by packs where it has them. What is left of the last one is at the end of a space of one dim. Work of one lane is
// long, and its code is there once.
template <int Lanes, typename Index, int N, typename Work> OPSMITH_INLINE void in_packs(const Space<Index, N> &space, const Work &work) {
    Index done = 0;
    if (Lanes > 1 && space.lanes == Lanes) {
        done = space.count / Lanes * Lanes;
        go_over<Lanes, 2>(Index(0), done, work);
    }
    if (done < space.count) go_over<1, Lanes == 1 ? 1 : 2>(done, space.count, work);
}

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
