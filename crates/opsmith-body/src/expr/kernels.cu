struct Operands { void *data[INPUTS + OUTPUTS]; };

template <typename Index> using Inputs = opsmith::Space<Index, INPUTS ? INPUTS : 1>;

// What is read and written of elements side by side, so many at a time.
template <typename Index> struct Elements {
    const Operands &operands;
    const Attributes &attributes;
    const Inputs<Index> &inputs;

    template <int Lanes> struct Held { opsmith::Pack<Stored, Lanes> in[INPUTS + 1]; };

    template <int Lanes> DEVICE Held<Lanes> read(Index i) const {
        Held<Lanes> held;
        const auto places = inputs[i];
#pragma unroll
        for (int k = 0; k < INPUTS; k++) {
            held.in[k] = opsmith::read<Lanes>((const Stored *)operands.data[k], places.at[k], inputs.strides[k][0]);
        }
        return held;
    }

    template <int Lanes> DEVICE void write(Index i, const Held<Lanes> &held) const {
        opsmith::Pack<Stored, Lanes> out[OUTPUTS];
        opsmith::Pack<Number, Lanes> terms[OUTPUTS];
#pragma unroll
        for (int l = 0; l < Lanes; l++) {
            Number numbers[INPUTS + 1], results[OUTPUTS];
#pragma unroll
            for (int k = 0; k < INPUTS; k++) numbers[k] = load(held.in[k].lane[l]);
            body(numbers, results, attributes);
#pragma unroll
            for (int k = 0; k < OUTPUTS; k++) {
                if (TERMS >> k & 1) {
                    terms[k].lane[l] = results[k];
                } else {
                    out[k].lane[l] = store(results[k]);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < OUTPUTS; k++) {
            if (TERMS >> k & 1) {
                opsmith::write((Number *)operands.data[INPUTS + k], i, terms[k]);
            } else {
                opsmith::write((Stored *)operands.data[INPUTS + k], i, out[k]);
            }
        }
    }
};

#if !defined(ONLY) || ONLY == 0
extern "C" __global__ void NAME_32(Operands operands, Attributes attributes, Inputs<int> inputs) {
    opsmith::in_packs<LANES>(inputs, Elements<int>{operands, attributes, inputs});
}
#endif

#if !defined(ONLY) || ONLY == 1
extern "C" __global__ void NAME_64(Operands operands, Attributes attributes, Inputs<long long> inputs) {
    opsmith::in_packs<LANES>(inputs, Elements<long long>{operands, attributes, inputs});
}
#endif
