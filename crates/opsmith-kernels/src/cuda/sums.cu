// Sums of an array over some of its dims, of numbers of double precision in an order that the sizes alone decide.
#include "opsmith.cuh"

// Dims of the array, the last first: those that are kept, or those that are summed over.
template <typename Index> struct Dims {
    Index count;
    int rank;
    Index dim[8], stride[8];

    OPSMITH_INLINE Index place(Index i) const {
        Index place = 0;
#pragma unroll
        for (int d = 0; d < 8; d++) {
            if (d == rank) break;
            place += i % dim[d] * stride[d];
            i /= dim[d];
        }
        return place;
    }
};

template <typename T> OPSMITH_INLINE double number(const T &x) { return (double)(opsmith::wide<T>)x; }

// A block for each sum: of a few that are long.
template <typename T, typename Index>
__global__ void sums_by_block(const T *from, T *to, Dims<Index> kept, Dims<Index> summed) {
    for (Index o = blockIdx.x; o < kept.count; o += gridDim.x) {
        const T *own = from + kept.place(o);
        double sum = 0;
        for (Index i = threadIdx.x; i < summed.count; i += blockDim.x) {
            sum += number(own[summed.place(i)]);
            if (summed.count - i <= blockDim.x) break;
        }
        sum = opsmith::block_sum(sum);
        if (threadIdx.x == 0) to[o] = T((opsmith::wide<T>)sum);
        if (kept.count - o <= gridDim.x) break;
    }
}

// A thread for each sum: of many.
template <typename T, typename Index>
__global__ void sums_by_thread(const T *from, T *to, Dims<Index> kept, Dims<Index> summed) {
    OPSMITH_GRID_LOOP(Index, o, kept.count) {
        const T *own = from + kept.place(o);
        double sum = 0;
        for (Index i = 0; i < summed.count; i++) sum += number(own[summed.place(i)]);
        to[o] = T((opsmith::wide<T>)sum);
    }
}
