#include "opsmith.cuh"

// y = 2 x. Any grid will do: each thread goes on by the size of the grid.
template <typename T, typename Index>
__global__ void doubled(opsmith::FlatAccessor<const T, Index> x, opsmith::FlatAccessor<T, Index> y) {
    OPSMITH_GRID_LOOP(Index, i, y.count()) y[i] = 2 * x[i];
}
