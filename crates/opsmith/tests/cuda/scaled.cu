#include "opsmith.cuh"

// z[i][j] = factor * x[i][j] + row[i], and its square where that is wanted.
template <typename T, typename Index>
__global__ void scaled(opsmith::PackedAccessor<const T, 2, Index> x, opsmith::PackedAccessor<const T, 1, Index> row,
                       bool has_row, T factor, opsmith::PackedAccessor<T, 2, Index> z, T *square) {
    for (Index i = blockIdx.x; i < z.size(0); i += gridDim.x)
        for (Index j = threadIdx.x; j < z.size(1); j += blockDim.x) {
            const T value = factor * x[i][j] + (has_row ? row[i] : T(0));
            z[i][j] = value;
            if (square) square[i * z.size(1) + j] = value * value;
        }
}

// Sums in two steps, through temporary memory.
__global__ void partial_sums(const double *x, int count, double *sums) {
    double sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += x[i];
    sum = opsmith::block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
