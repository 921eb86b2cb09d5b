
// What is subtracted becomes a larger number, and sums are to be scaled by this.
DEVICE Number follow(Number x, Number &shift) {
    const Number by = exp@(shift - x);
    shift = x;
    return by;
}

// By what sums of exponentials of numbers less `from` are scaled to be those less `to`.
DEVICE Number settled(Number from, Number to) { return from == to ? Number(1) : exp@(from - to); }

// Whether something holds for all threads of a block.
DEVICE bool all(bool holds) {
    __shared__ int count;
    __syncthreads();
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (!holds) count = 1;
    __syncthreads();
    return count == 0;
}
