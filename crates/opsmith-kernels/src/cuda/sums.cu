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
            if (d + 1 >= rank) return place + i * stride[d];   // the first dim is all that is left
            place += i % dim[d] * stride[d];
            i /= dim[d];
        }
        return place;
    }
};

template <typename T> OPSMITH_INLINE double number(const T &x) { return (double)(opsmith::wide<T>)x; }

// Each row of the grid adds up a part of the terms, to outputs of its own.

// A block for each sum: of a few whose terms lie side by side.
template <typename From, typename To, typename Index>
__global__ void sums_by_block(const From *from, To *to, Dims<Index> kept, Dims<Index> summed, Index part) {
    const Index first = blockIdx.y * part, rest = summed.count - first, count = rest < part ? rest : part;
    for (Index o = blockIdx.x; o < kept.count; o += gridDim.x) {
        const From *own = from + kept.place(o);
        double sum = 0;
        for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += number(own[summed.place(first + i)]);
        sum = opsmith::block_sum(sum);
        if (threadIdx.x == 0) to[(size_t)blockIdx.y * kept.count + o] = opsmith::rounded<To>(sum);
    }
}

// A block for as many sums as it has columns of threads: of terms that lie side by side for places that do. Its rows share them.
template <typename From, typename To, typename Index>
__global__ void sums_across(const From *from, To *to, Dims<Index> kept, Dims<Index> summed, Index part) {
    __shared__ double shares[1024];
    const Index columns = blockDim.x;
    const Index first = blockIdx.y * part, rest = summed.count - first, count = rest < part ? rest : part;
    for (Index place = blockIdx.x * columns; place < kept.count; place += gridDim.x * columns) {
        const Index o = place + threadIdx.x;
        double sum = 0;
        if (o < kept.count) {
            const From *own = from + kept.place(o);
            for (Index i = threadIdx.y; i < count; i += blockDim.y) sum += number(own[summed.place(first + i)]);
        }
        shares[threadIdx.y * columns + threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && o < kept.count) {
            for (int row = 1; row < blockDim.y; row++) sum += shares[row * columns + threadIdx.x];
            to[(size_t)blockIdx.y * kept.count + o] = opsmith::rounded<To>(sum);
        }
        __syncthreads();
    }
}
