#define MAX_RANK 8

struct Operands { void *data[OPERANDS]; };

// How far an operand is at an index, of dims with the last one first.
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

