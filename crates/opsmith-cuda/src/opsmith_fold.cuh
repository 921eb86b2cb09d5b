// Folds over dims of a tensor: which threads take what follows from the shapes alone, and so does the order in which it is put together.
#pragma once
#include "opsmith.cuh"

namespace opsmith {

// A fold is a structure of what it begins with, takes and is merged to, and shows in the end.

// A sum in double precision: of all numbers, or of those whose condition is `Taken`, 0 or 1.
template <int Taken> struct Total {
    template <typename X> using State = double;
    template <typename X> static OPSMITH_INLINE double first() { return 0; }
    template <typename X, typename C, typename Index>
    static OPSMITH_INLINE double take(double sum, X x, C condition, Index) {
        return Taken < 0 || (condition != C(0)) == (Taken > 0) ? sum + (double)(wide<X>)x : sum;
    }
    static OPSMITH_INLINE double merge(double a, double b) { return a + b; }
    template <typename Z> static OPSMITH_INLINE Z show(double sum) { return rounded<Z>(sum); }
};

// A fold of numbers of type X that is left as it is, and one of what was left.
template <typename Fold, typename X> struct Left : Fold {
    template <typename Z> static OPSMITH_INLINE Z show(Z state) { return state; }
};
template <typename Fold, typename X> struct Again : Fold {
    template <typename> using State = typename Fold::template State<X>;
    template <typename> static OPSMITH_INLINE State<X> first() { return Fold::template first<X>(); }
    template <typename C, typename Index> static OPSMITH_INLINE State<X> take(State<X> a, State<X> b, C, Index) {
        return Fold::merge(a, b);
    }
};

// Threads along x have neighbouring results, and those along y share the terms of each, where it is `across` memory; else the other way
// round. Each row of the grid takes a part of the terms, and has results of its own.
template <typename Fold, typename X, typename C, typename Z, typename Index>
__global__ void folded(const X *x, const C *condition, Z *z, Space<Index, 2> results, Space<Index, 2> terms, bool across) {
    typedef typename Fold::template State<X> State;
    typedef plain<Index> Size;
    static_assert(sizeof(State) <= 16, "launches have so much memory for what is left");
    enum { AHEAD = 4 };
    __shared__ State all[256];
    const int own = threadIdx.y * blockDim.x + threadIdx.x, next = across ? blockDim.x : 1;
    const int row = across ? threadIdx.x : threadIdx.y, rows = across ? blockDim.x : blockDim.y;
    const int lane = across ? threadIdx.y : threadIdx.x, lanes = across ? blockDim.y : blockDim.x;
    const Size count = (Size)terms.count, step = (Size)gridDim.y * lanes;
    for (long long begin = (long long)blockIdx.x * rows; begin < results.count; begin += (long long)gridDim.x * rows) {
        const long long result = begin + row;
        State found = Fold::template first<X>();
        if (result < results.count) {
            const auto base = results[(Index)result];
            Size term = (Size)blockIdx.y * lanes + lane;
            for (; term < count && count - term > (AHEAD - 1) * step; term += AHEAD * step) {
                X numbers[AHEAD];
                C conditions[AHEAD];
#pragma unroll
                for (int n = 0; n < AHEAD; n++) {
                    const auto places = terms[(Index)(term + n * step)];
                    numbers[n] = x[base.at[0] + places.at[0]], conditions[n] = condition[base.at[1] + places.at[1]];
                }
#pragma unroll
                for (int n = 0; n < AHEAD; n++) found = Fold::take(found, numbers[n], conditions[n], (Index)(term + n * step));
            }
            for (; term < count; term += step) {
                const auto places = terms[(Index)term];
                found = Fold::take(found, x[base.at[0] + places.at[0]], condition[base.at[1] + places.at[1]], (Index)term);
            }
        }
        all[own] = found;
        for (int half = lanes / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half) all[own] = Fold::merge(all[own], all[own + half * next]);
        }
        if (lane == 0 && result < results.count) z[(size_t)blockIdx.y * results.count + result] = Fold::template show<Z>(all[own]);
        __syncthreads();
    }
}

}  // namespace opsmith
