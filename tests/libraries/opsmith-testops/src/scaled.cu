#include "opsmith.cuh"

// z = factor x.
template <typename T, typename Index>
__global__ void scaled(opsmith::FlatAccessor<const T, Index> x, T factor, opsmith::FlatAccessor<T, Index> z) {
    OPSMITH_GRID_LOOP(Index, i, z.count()) z[i] = factor * x[i];
}
