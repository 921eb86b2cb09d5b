// Functions of one, two or three elements.
#include "opsmith.cuh"

// What is gone through, the last dim first, and how far the elements of each input are from each other. The output is dense.
template <typename Index> struct Space {
    Index count;
    int rank;
    Index dim[8], strides[3][8];
};

template <typename Op, typename W, typename X, typename Y, typename Z, typename Index>
__global__ void each(const W *w, const X *x, const Y *y, Z *z, Space<Index> space) {
    OPSMITH_GRID_LOOP(Index, i, space.count) {
        Index rest = i, a = 0, b = 0, c = 0;
#pragma unroll
        for (int d = 0; d < 8; d++) {
            if (d == space.rank) break;
            const Index at = rest % space.dim[d];
            rest /= space.dim[d];
            a += at * space.strides[0][d];
            b += at * space.strides[1][d];
            c += at * space.strides[2][d];
        }
        z[i] = Op::template of<Z>(w[a], x[b], y[c]);
    }
}

#define OPSMITH_EACH(name, body)                                            \
    struct name {                                                           \
        template <typename Z, typename W, typename X, typename Y>           \
        static OPSMITH_INLINE Z of(W a, X b, Y c) { return body; }          \
    }

OPSMITH_EACH(is_equal, a == b);
OPSMITH_EACH(is_not_equal, a != b);
OPSMITH_EACH(is_less, a < b);
OPSMITH_EACH(is_at_most, a <= b);
OPSMITH_EACH(is_greater, a > b);
OPSMITH_EACH(is_at_least, a >= b);
OPSMITH_EACH(both, a && b);
OPSMITH_EACH(one_of, a || b);
OPSMITH_EACH(not_so, !a);
OPSMITH_EACH(chosen, a ? b : c);
// Of integers, which wrap around.
OPSMITH_EACH(plus, (Z)((unsigned long long)a + (unsigned long long)b));
OPSMITH_EACH(minus, (Z)((unsigned long long)a - (unsigned long long)b));
OPSMITH_EACH(times, (Z)((unsigned long long)a * (unsigned long long)b));
OPSMITH_EACH(negative, (Z)(0ull - (unsigned long long)a));
OPSMITH_EACH(squared, (Z)((unsigned long long)a * (unsigned long long)a));
OPSMITH_EACH(magnitude, a < W(0) ? (Z)(0ull - (unsigned long long)a) : a);
OPSMITH_EACH(direction, (Z)((a > W(0)) - (a < W(0))));
OPSMITH_EACH(larger, a > b ? a : b);
OPSMITH_EACH(smaller, a < b ? a : b);
