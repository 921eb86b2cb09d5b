#define OPERANDS (INPUTS + OUTPUTS)
#define MAX_RANK 8

struct Operands { void *data[OPERANDS]; };

template <typename Index, typename Stride> struct Layout {
    Index count;
    int rank;
    Index dim[MAX_RANK];
    Stride stride[OPERANDS][MAX_RANK];
};

// As many elements as one access of 16 bytes has. Long bodies compute longer than they read, and would be compiled
// that many times.
#if PACKED
#define LANES (16 / sizeof(Stored))
struct alignas(16) Pack { Stored lane[LANES]; };
#endif

template <typename Index> DEVICE Index first() { return (Index)blockIdx.x * blockDim.x + threadIdx.x; }
template <typename Index> DEVICE Index step() { return (Index)gridDim.x * blockDim.x; }

// One element, of each operand at its own place.
template <typename Place> DEVICE void element(const Operands &operands, const Attributes &attributes, Place place) {
    Number in[INPUTS + 1], out[OUTPUTS];
#pragma unroll
    for (int k = 0; k < INPUTS; k++) in[k] = load(((const Stored *)operands.data[k])[place(k)]);
    body(in, out, attributes);
#pragma unroll
    for (int k = 0; k < OUTPUTS; k++) ((Stored *)operands.data[INPUTS + k])[place(INPUTS + k)] = store(out[k]);
}

// Accesses of 16 bytes where all operands are aligned to them, then one element at a time.
template <typename Index> DEVICE void contiguous(const Operands &operands, const Attributes &attributes, Index count) {
    Index done = 0;
#if PACKED
    unsigned long long addresses = 0;
#pragma unroll
    for (int k = 0; k < OPERANDS; k++) addresses |= (unsigned long long)operands.data[k];
    Index packs = addresses % sizeof(Pack) == 0 ? count / LANES : 0;
    for (Index i = first<Index>(); i < packs; i += step<Index>()) {
        Pack in[INPUTS + 1], out[OUTPUTS];
#pragma unroll
        for (int k = 0; k < INPUTS; k++) in[k] = ((const Pack *)operands.data[k])[i];
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            Number numbers[INPUTS + 1], results[OUTPUTS];
#pragma unroll
            for (int k = 0; k < INPUTS; k++) numbers[k] = load(in[k].lane[l]);
            body(numbers, results, attributes);
#pragma unroll
            for (int k = 0; k < OUTPUTS; k++) out[k].lane[l] = store(results[k]);
        }
#pragma unroll
        for (int k = 0; k < OUTPUTS; k++) ((Pack *)operands.data[INPUTS + k])[i] = out[k];
        if (packs - i <= step<Index>()) break;
    }
    done = packs * LANES;
#endif
    for (Index i = first<Index>(); i < count - done; i += step<Index>()) {
        element(operands, attributes, [=](int) { return done + i; });
        if (count - done - i <= step<Index>()) break;
    }
}

template <typename Index, typename Stride>
DEVICE void strided(const Operands &operands, const Attributes &attributes, const Layout<Index, Stride> &layout) {
    for (Index i = first<Index>(); i < layout.count; i += step<Index>()) {
        Stride place[OPERANDS] = {};
        Index rest = i;
#pragma unroll
        for (int d = 0; d < MAX_RANK; d++) {
            if (d == layout.rank) break;
            Index along = rest % layout.dim[d];
            rest /= layout.dim[d];
#pragma unroll
            for (int k = 0; k < OPERANDS; k++) place[k] += (Stride)along * layout.stride[k][d];
        }
        element(operands, attributes, [&](int k) { return place[k]; });
        // The next one may be beyond what the index holds.
        if (layout.count - i <= step<Index>()) break;
    }
}

#if !defined(ONLY) || ONLY == 0
extern "C" __global__ void NAME_contiguous_32(Operands operands, Attributes attributes, unsigned count) {
    contiguous<unsigned>(operands, attributes, count);
}
#endif

#if !defined(ONLY) || ONLY == 1
extern "C" __global__ void NAME_contiguous_64(Operands operands, Attributes attributes, unsigned long long count) {
    contiguous<unsigned long long>(operands, attributes, count);
}
#endif

#if !defined(ONLY) || ONLY == 2
extern "C" __global__ void NAME_strided_32(Operands operands, Attributes attributes, Layout<unsigned, int> layout) {
    strided(operands, attributes, layout);
}
#endif

#if !defined(ONLY) || ONLY == 3
extern "C" __global__ void NAME_strided_64(
    Operands operands, Attributes attributes, Layout<unsigned long long, long long> layout) {
    strided(operands, attributes, layout);
}
#endif
