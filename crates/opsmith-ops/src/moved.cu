// Moves elements to their places in an output, and puts zeros around them.
#include "opsmith.cuh"

// What is gone through, the last dim first: where elements of the output are, and which of them come from the input.
template <typename Index> struct Space {
    Index count;
    int rank;
    Index dim[8], start[8], size[8], from[8], to[8];
};

// Elements are bytes here, of a type as large as theirs.
template <typename T, typename Index>
__global__ void move(const T *from, T *to, Space<Index> space) {
    OPSMITH_GRID_LOOP(Index, i, space.count) {
        Index rest = i, source = 0, target = 0;
        bool inside = true;
#pragma unroll
        for (int d = 0; d < 8; d++) {
            if (d == space.rank) break;
            const Index at = rest % space.dim[d], own = at - space.start[d];
            rest /= space.dim[d];
            target += at * space.to[d];
            inside = inside && own >= 0 && own < space.size[d];
            source += own * space.from[d];
        }
        to[target] = inside ? from[source] : T(0);
    }
}
