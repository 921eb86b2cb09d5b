// Moves elements to their places in an output, and puts zeros around them.
#include "opsmith.cuh"

using opsmith::Pack;

// Where the input begins along each dim that is gone through, the last one first, and how many elements it has.
template <typename Index> struct Inside {
    Index start[8], size[8];
};

// Elements are bytes here, of a type as large as theirs. The operands of the space are the input and the output.
template <typename T, typename Index> struct Moving {
    const T *from;
    T *to;
    const opsmith::Space<Index, 2> &space;
    const Inside<Index> &inside;

    template <int Lanes> struct Held {
        Pack<T, Lanes> pack;
        Index target;
    };

    template <int Lanes> OPSMITH_INLINE Held<Lanes> read(Index i) const {
        opsmith::plain<Index> rest = (opsmith::plain<Index>)i;
        Index source = 0;
        Held<Lanes> held = {};
        bool is_inside = true;
#pragma unroll
        for (int d = 0; d < 8; d++) {
            const bool is_last = d + 1 >= space.rank;
            const opsmith::plain<Index> size = (opsmith::plain<Index>)space.dim[d], next = is_last ? 0 : rest / size;
            const Index at = (Index)(rest - next * size), own = at - inside.start[d];
            held.target += at * space.strides[1][d];
            is_inside = is_inside && own >= 0 && own < inside.size[d];
            source += own * space.strides[0][d];
            if (is_last) break;
            rest = next;
        }
        if (is_inside) held.pack = opsmith::read<Lanes>(from, source, space.strides[0][0]);
        return held;
    }

    template <int Lanes> OPSMITH_INLINE void write(Index, const Held<Lanes> &held) const { opsmith::write(to, held.target, held.pack); }
};

template <typename T, typename Index> __global__ void move(const T *from, T *to, opsmith::Space<Index, 2> space, Inside<Index> inside) {
    opsmith::in_packs<opsmith::lanes_of<T>()>(space, Moving<T, Index>{from, to, space, inside});
}
