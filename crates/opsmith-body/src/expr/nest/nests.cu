#define MAX_RANK 8

struct Operands { void *data[OPERANDS]; };

// The last dim of the batch first; a stride is 0 where an operand is the same along a dim or does not lie on an axis.
template <typename Index, typename Stride> struct Layout {
    Index units, size[AXES];
    int rank;
    Index dim[MAX_RANK];
    Stride stride[OPERANDS][MAX_RANK], along[OPERANDS][AXES];
};

template <typename Index, typename Stride>
DEVICE Stride place(Index index, int rank, const Index *dim, const Stride *stride) {
    Stride sum = 0;
#pragma unroll
    for (int d = 0; d < MAX_RANK; d++) {
        if (d == rank) break;
        sum += (Stride)(index % dim[d]) * stride[d];
        index /= dim[d];
    }
    return sum;
}

// What a sum rounds off is known exactly (D. Knuth), and kept.
DEVICE void add(Number x, Number &total, Number &lost) {
    const Number sum = total + x, of_x = sum - total;
    lost += (total - (sum - of_x)) + (x - of_x);
    total = sum;
}

// Of an infinite sum nothing is lost, and what was computed for it is no number.
DEVICE Number summed(Number total, Number lost) { return lost == lost ? total + lost : total; }
