// The last dim of the batch first; a stride is 0 where an operand is the same along a dim or does not lie on an axis.
template <typename Index, typename Stride> struct Layout {
    Index units, size[AXES];
    int rank;
    Index dim[MAX_RANK];
    Stride stride[OPERANDS][MAX_RANK], along[OPERANDS][AXES];
};

// What a sum rounds off is known exactly (D. Knuth), and kept.
DEVICE void add(Number x, Number &total, Number &lost) {
    const Number sum = total + x, of_x = sum - total;
    lost += (total - (sum - of_x)) + (x - of_x);
    total = sum;
}

// Of an infinite sum nothing is lost, and what was computed for it is no number.
DEVICE Number summed(Number total, Number lost) { return lost == lost ? total + lost : total; }
