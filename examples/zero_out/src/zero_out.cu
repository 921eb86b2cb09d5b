#include "opsmith.cuh"

// Keeps the element at `index` of every `length`, in row-major order, and sets all others to zero.
template <typename T, typename Index>
__global__ void keep(opsmith::FlatAccessor<const T, Index> from, Index length, Index index, opsmith::FlatAccessor<T, Index> to) {
    OPSMITH_GRID_LOOP(Index, i, to.count()) to[i] = i % length == index ? from[i] : T(0);
}
