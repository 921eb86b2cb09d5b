// Values put in the places of a dense tensor. A place that is not there is left out, and of values of one place the last one counts: a
// card can refuse neither.
#include "opsmith.cuh"

enum { MOST = 32 };

// The places that rows of indices name, in a dense tensor of these dims.
template <typename P, typename Index> struct Rows {
    const P *indices;
    Index row, column;   // how far indices are from each other
    int rank;
    Index dim[MOST];

    // The place of a value, or −1.
    OPSMITH_INLINE Index operator[](Index value) const {
        Index place = 0;
        for (int d = 0; d < rank; d++) {
            const long long at = (long long)indices[value * row + d * column];
            if (at < 0 || at >= (long long)dim[d]) return -1;
            place = place * dim[d] + (Index)at;
        }
        return place;
    }
};

template <typename Index> __global__ void begun(Index *last, Index count) {
    OPSMITH_GRID_LOOP(Index, place, count) last[place] = -1;
}

// The last value of each place, in whatever order the threads come.
template <typename P, typename Index> __global__ void found(Rows<P, Index> rows, Index *last, Index count) {
    OPSMITH_GRID_LOOP(Index, value, count) {
        const Index place = rows[value];
        if (place >= 0) atomicMax(last + place, value);
    }
}

// Elements are bytes here, of a type as large as theirs. The operand is the values.
template <typename T, typename Index>
__global__ void placed(const Index *last, const T *values, T *y, Index count, opsmith::Space<Index, 1> space) {
    OPSMITH_GRID_LOOP(Index, place, count) {
        const Index value = last[place];
        y[place] = value < 0 ? T(0) : values[space[value].at[0]];
    }
}

// What was placed, from where it is; zeros for values that are not there. The operand is the dense tensor.
template <typename T, typename P, typename Index>
__global__ void taken(Rows<P, Index> rows, const Index *last, const T *dense, T *values, Index count, opsmith::Space<Index, 1> space) {
    OPSMITH_GRID_LOOP(Index, value, count) {
        const Index place = rows[value];
        values[value] = place >= 0 && last[place] == value ? dense[space[place].at[0]] : T(0);
    }
}
