// Elements by their positions along a dim. A position that is not there gives zeros: a card cannot refuse it.
#include "opsmith.cuh"

using opsmith::Space;

// A position along `dim`, counted from its end where negative; −1 where it is not there.
template <typename P> OPSMITH_INLINE long long from_start(P given, long long dim) {
    const long long at = given < 0 ? given + dim : given;
    return at >= 0 && at < dim ? at : -1;
}

// Elements are bytes here, of a type as large as theirs. The operands are the tensor, but for its own dim, and the positions.
template <typename T, typename P, typename Index>
__global__ void taken(const T *x, const P *positions, T *y, Index dim, Index step, Space<Index, 2> space) {
    OPSMITH_GRID_LOOP(Index, i, space.count) {
        const auto places = space[i];
        const long long at = from_start(positions[places.at[1]], dim);
        y[i] = at < 0 ? T(0) : x[places.at[0] + (Index)at * step];
    }
}

// Sums of what was taken from each place, in the order of the positions. A block has a position of the dim and some of the places
// before and behind, which are the operand of `kept`. The operands of `terms` are the gradient and the positions.
template <typename T, typename P, typename Index>
__global__ void put_back(const T *gradient, const P *positions, T *x, Index dim, Index inner, Space<Index, 1> kept, Space<Index, 2> terms) {
    __shared__ bool hit[256];
    const Index slabs = (kept.count + 255) / 256;
    for (long long block = blockIdx.x; block < (long long)dim * slabs; block += gridDim.x) {
        const Index at = (Index)(block / slabs), own = (Index)(block % slabs) * 256 + threadIdx.x;
        const bool is_there = own < kept.count;
        const Index base = is_there ? kept[own].at[0] : 0;
        opsmith::wide<T> sum = 0;
        for (Index first = 0; first < terms.count; first += 256) {
            const Index term = first + threadIdx.x;
            const bool is_hit = term < terms.count && from_start(positions[terms[term].at[1]], dim) == at;
            hit[threadIdx.x] = is_hit;
            if (__syncthreads_or(is_hit)) {
                for (Index n = 0; n < 256; n++) {
                    if (is_there && hit[n]) sum += (opsmith::wide<T>)gradient[base + terms[first + n].at[0]];
                }
            }
            __syncthreads();
        }
        if (is_there) x[(own / inner * dim + at) * inner + own % inner] = T(sum);
    }
}

// The operands are the positions, and how far an element is along the new dim.
template <typename P, typename Z, typename Index> __global__ void marked(const P *positions, Z *y, Space<Index, 2> space) {
    OPSMITH_GRID_LOOP(Index, i, space.count) {
        const auto places = space[i];
        y[i] = (long long)positions[places.at[0]] == (long long)places.at[1] ? (Z)1 : (Z)0;
    }
}
