// Kernels of stages: structures with the numbers of inputs and outputs, `body`, for each input what it is known for, and
// for each input and output whether it only goes from stage to stage: those are not rounded to the tensors' type.

typedef unsigned long long Index;
#define SIDE 16
enum Axes { X, Y, PAIR, DEPTH };

struct Operands { void *data[OPERANDS]; };
struct Sizes { Index n, m, p; };

template <class S> DEVICE Number number(const Operands &operands, int input, Index at) {
    const void *data = operands.data[input];
    return S::between(input) ? ((const Number *)data)[at] : load(((const Stored *)data)[at]);
}
template <class S> DEVICE void result(const Operands &operands, int output, Index at, Number value) {
    void *data = operands.data[S::INPUTS + output];
    if (S::between(S::INPUTS + output)) ((Number *)data)[at] = value;
    else ((Stored *)data)[at] = store(value);
}

// Every element of arrays of one size.
template <class S> DEVICE void elements(const Operands &operands, const Attributes &attributes, const Sizes &sizes) {
    const Index count = S::SPACE == X ? sizes.n * sizes.p : S::SPACE == Y ? sizes.m * sizes.p : sizes.n * sizes.m;
    for (Index at = (Index)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (Index)gridDim.x * blockDim.x) {
        Number in[S::INPUTS + 1], out[S::OUTPUTS];
#pragma unroll
        for (int t = 0; t < S::INPUTS; t++) in[t] = S::axes(t) == DEPTH ? (Number)sizes.p : number<S>(operands, t, at);
        S::body(in, out, attributes);
#pragma unroll
        for (int o = 0; o < S::OUTPUTS; o++) result<S>(operands, o, at, out[o]);
    }
}

// Folds of triples of a row of x, a row of y and an element, along that letter of the three which the output has not. The
// output is for `OVER`, its own letters are a and b, the third is c: operands for a and b are in registers, and the others in
// tiles in shared memory, SIDE places of c at a time. A block is of SIDE x SIDE threads, each for EDGE x EDGE of a and b.
template <int OVER> DEVICE Index place(int axes, Index a, Index b, Index c, const Sizes &sizes) {
    const Index i = OVER == Y ? c : a, j = OVER == X ? c : OVER == Y ? a : b, k = OVER == PAIR ? c : b;
    return axes == PAIR ? i * sizes.m + j : (axes == X ? i : j) * sizes.p + k;
}
// Whether an operand is in tiles, along a or else along b, and whether its neighbours in memory are along c.
template <int OVER> DEVICE constexpr bool in_tiles(int axes) { return axes != OVER && axes != DEPTH; }
template <int OVER> DEVICE constexpr bool along_a(int axes) { return axes == (OVER == PAIR ? X : PAIR); }
template <int OVER> DEVICE constexpr bool along_c(int axes) { return OVER == PAIR || (OVER == X && axes == PAIR); }

template <class S, int OUTPUT, int FOLD, int OVER, int EDGE>
DEVICE void fold_triples(const Operands &operands, const Attributes &attributes, const Sizes &sizes) {
    // An array has at least one element, also where the body reads nothing.
    constexpr int ROWS = SIDE * EDGE, INPUTS = S::INPUTS > 0 ? S::INPUTS : 1;
    alignas(16) __shared__ Number tiles[INPUTS][SIDE][ROWS + (EDGE > 1 ? 4 : 1)];
    const int thread = threadIdx.y * SIDE + threadIdx.x, row = threadIdx.y * EDGE, column = threadIdx.x * EDGE;
    const Index end_a = OVER == Y ? sizes.m : sizes.n, end_b = OVER == PAIR ? sizes.m : sizes.p;
    const Index end_c = OVER == PAIR ? sizes.p : OVER == X ? sizes.m : sizes.n;
    for (Index a0 = (Index)blockIdx.y * ROWS; a0 < end_a; a0 += (Index)gridDim.y * ROWS)
        for (Index b0 = (Index)blockIdx.x * ROWS; b0 < end_b; b0 += (Index)gridDim.x * ROWS) {
            Number own[INPUTS][EDGE][EDGE], totals[EDGE][EDGE];
#pragma unroll
            for (int ij = 0; ij < EDGE * EDGE; ij++) {
                const Index a = a0 + row + ij / EDGE, b = b0 + column + ij % EDGE;
#pragma unroll
                for (int t = 0; t < S::INPUTS; t++)
                    if (S::axes(t) == OVER)
                        own[t][ij / EDGE][ij % EDGE] =
                            a < end_a && b < end_b ? number<S>(operands, t, place<OVER>(OVER, a, b, 0, sizes)) : Number(0);
                totals[ij / EDGE][ij % EDGE] = identity<FOLD>();
            }
            for (Index c0 = 0; c0 < end_c; c0 += SIDE) {
#pragma unroll
                for (int t = 0; t < S::INPUTS; t++) {
                    const int axes = S::axes(t);
                    if (!in_tiles<OVER>(axes)) continue;
#pragma unroll
                    for (int at = thread; at < ROWS * SIDE; at += SIDE * SIDE) {
                        const int c = along_c<OVER>(axes) ? at % SIDE : at / ROWS, r = along_c<OVER>(axes) ? at / SIDE : at % ROWS;
                        const Index a = a0 + r, b = b0 + r;
                        const bool inside = c0 + c < end_c && (along_a<OVER>(axes) ? a < end_a : b < end_b);
                        tiles[t][c][r] =
                            inside ? number<S>(operands, t, place<OVER>(axes, a, b, c0 + c, sizes)) : Number(0);
                    }
                }
                __syncthreads();
                // Of few numbers each, so that what is rounded off a long sum stays small.
                Number parts[EDGE][EDGE];
#pragma unroll
                for (int ij = 0; ij < EDGE * EDGE; ij++) parts[ij / EDGE][ij % EDGE] = identity<FOLD>();
                const int len = end_c - c0 < SIDE ? (int)(end_c - c0) : SIDE;
                for (int c = 0; c < len; c++) {
                    Number near[INPUTS][EDGE], in[INPUTS], out[S::OUTPUTS];
#pragma unroll
                    for (int t = 0; t < S::INPUTS; t++)
                        if (in_tiles<OVER>(S::axes(t)))
#pragma unroll
                            for (int e = 0; e < EDGE; e++)
                                near[t][e] = tiles[t][c][(along_a<OVER>(S::axes(t)) ? row : column) + e];
#pragma unroll
                    for (int ij = 0; ij < EDGE * EDGE; ij++) {
                        const int i = ij / EDGE, j = ij % EDGE;
#pragma unroll
                        for (int t = 0; t < S::INPUTS; t++)
                            in[t] = S::axes(t) == DEPTH ? (Number)sizes.p
                                  : S::axes(t) == OVER  ? own[t][i][j]
                                                        : near[t][along_a<OVER>(S::axes(t)) ? i : j];
                        S::body(in, out, attributes);
                        parts[i][j] = fold<FOLD>(parts[i][j], out[OUTPUT]);
                    }
                }
#pragma unroll
                for (int ij = 0; ij < EDGE * EDGE; ij++)
                    totals[ij / EDGE][ij % EDGE] = fold<FOLD>(totals[ij / EDGE][ij % EDGE], parts[ij / EDGE][ij % EDGE]);
                __syncthreads();
            }
#pragma unroll
            for (int ij = 0; ij < EDGE * EDGE; ij++) {
                const Index a = a0 + row + ij / EDGE, b = b0 + column + ij % EDGE;
                if (a < end_a && b < end_b)
                    result<S>(operands, OUTPUT, place<OVER>(OVER, a, b, 0, sizes), totals[ij / EDGE][ij % EDGE]);
            }
        }
}
