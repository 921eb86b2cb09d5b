// Random numbers of Philox 4x32-10, of which each thread makes a block, and what is made of them. Products are rounded before they are
// added to, as on the CPU, so that numbers are the same there.
#include "opsmith.cuh"

typedef unsigned long long Word2;

struct Block {
    unsigned words[4];

    OPSMITH_INLINE Block(Word2 counter, Word2 seed) {
        unsigned a = (unsigned)counter, b = (unsigned)(counter >> 32), c = 0, d = 0;
        unsigned low = (unsigned)seed, high = (unsigned)(seed >> 32);
#pragma unroll
        for (int round = 0; round < 10; round++) {
            const Word2 left = (Word2)a * 0xD2511F53u, right = (Word2)c * 0xCD9E8D57u;
            a = (unsigned)(right >> 32) ^ b ^ low;
            b = (unsigned)right;
            c = (unsigned)(left >> 32) ^ d ^ high;
            d = (unsigned)left;
            low += 0x9E3779B9u;
            high += 0xBB67AE85u;
        }
        words[0] = a, words[1] = b, words[2] = c, words[3] = d;
    }

    // The bits of an element of so many words, the lower word first.
    template <int Words> OPSMITH_INLINE Word2 of(int at) const {
        return Words == 2 ? words[2 * at] | (Word2)words[2 * at + 1] << 32 : words[at];
    }
};

// What a kernel is given besides the seed: two numbers, and the largest that may be given.
struct Numbers {
    double first, second, last;
};

// A word is below the threshold of a probability with that probability. What is no number is never.
OPSMITH_INLINE Word2 threshold(double p) {
    return p > 0 ? p < 1 ? (Word2)round(p * 4294967296.0) : 1ull << 32 : 0;
}

struct bits {
    template <typename Z, int Words, typename X> static OPSMITH_INLINE Z of(Word2 word, X, Numbers) { return (Z)word; }
};

struct uniform {
    template <typename Z, int Words, typename X> static OPSMITH_INLINE Z of(Word2 word, X, Numbers n) {
        const double unit = Words == 2 ? (double)(word >> 11) / 9007199254740992.0 : (double)(word >> 8) / 16777216.0;
        const Z number = opsmith::rounded<Z>(n.first + __dmul_rn(n.second, unit));
        // What is rounded up to the end is not in the range.
        return (double)(opsmith::wide<Z>)number > n.last ? opsmith::rounded<Z>(n.last) : number;
    }
};

// Quantiles of the normal distribution: algorithm AS 241 (Wichura, 1988).
template <int N> OPSMITH_INLINE double horner(double x, const double (&coefficients)[N]) {
    double sum = 0;
#pragma unroll
    for (int n = N - 1; n >= 0; n--) sum = __dmul_rn(sum, x) + coefficients[n];
    return sum;
}

OPSMITH_INLINE double logarithm(double x) {
    const long long all = __double_as_longlong(x);
    double power = (double)((all >> 52) - 1023);
    double rest = __longlong_as_double((all & ((1ll << 52) - 1)) | 1023ll << 52);
    if (rest > 1.41421356237309504880) power += 1, rest *= 0.5;
    const double s = (rest - 1) / (rest + 1), square = __dmul_rn(s, s);
    double series = 0;
#pragma unroll
    for (int term = 11; term >= 0; term--) series = __dmul_rn(series, square) + 1.0 / (double)(2 * term + 1);
    return __dmul_rn(power, 0.69314718055994530942) + __dmul_rn(2 * s, series);
}

OPSMITH_INLINE double quantile(double p) {
    const double q = p - 0.5;
    if ((q < 0 ? -q : q) <= 0.425) {
        const double above[] = {3.387132872796366608,  133.14166789178437745, 1971.5909503065514427, 13731.693765509461125,
                                45921.953931549871457, 67265.770927008700853, 33430.575583588128105, 2509.0809287301226727};
        const double below[] = {1.0,                   42.313330701600911252, 687.1870074920579083,  5394.1960214247511077,
                                21213.794301586595867, 39307.89580009271061,  28729.085735721942674, 5226.495278852854561};
        const double r = 0.425 * 0.425 - __dmul_rn(q, q);
        return __dmul_rn(q, horner(r, above)) / horner(r, below);
    }
    const double r = sqrt(-logarithm(p < 1 - p ? p : 1 - p));
    double number;
    if (r > 5) {
        const double above[] = {6.6579046435011037772,     5.4637849111641143699,     1.7848265399172913358,
                                2.9656057182850489123e-1,  2.6532189526576123093e-2,  1.2426609473880784386e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
        const double below[] = {1.0,                       5.9983220655588793769e-1,  1.3692988092273580531e-1,
                                1.48753612908506148525e-2, 7.868691311456132591e-4,   1.8463183175100546818e-5,
                                1.4215117583164458887e-7,  2.04426310338993978564e-15};
        number = horner(r - 5, above) / horner(r - 5, below);
    } else {
        const double above[] = {1.42343711074968357734,   4.6303378461565452959,    5.7694972214606914055,    3.64784832476320460504,
                                1.27045825245236838258,   2.4178072517745061177e-1, 2.27238449892691845833e-2, 7.7454501427834140764e-4};
        const double below[] = {1.0,                      2.05319162663775882187,    1.6763848301838038494,    6.8976733498510000455e-1,
                                1.4810397642748007459e-1, 1.51986665636164571966e-2, 5.475938084995344946e-4,  1.05075007164441684324e-9};
        number = horner(r - 1.6, above) / horner(r - 1.6, below);
    }
    return p < 0.5 ? -number : number;
}

struct normal {
    template <typename Z, int Words, typename X> static OPSMITH_INLINE Z of(Word2 word, X, Numbers n) {
        const double p = Words == 2 ? ((double)(word >> 12) + 0.5) / 4503599627370496.0 : ((double)word + 0.5) / 4294967296.0;
        return opsmith::rounded<Z>(n.first + __dmul_rn(n.second, quantile(p)));
    }
};

struct bernoulli {
    template <typename Z, int Words, typename X> static OPSMITH_INLINE Z of(Word2 word, X p, Numbers) {
        return word < threshold((double)(opsmith::wide<X>)p) ? (Z)1 : (Z)0;
    }
};

// The first number is the probability to drop, the second what is kept is multiplied by.
struct dropout {
    template <typename Z, int Words, typename X> static OPSMITH_INLINE Z of(Word2 word, X x, Numbers n) {
        return word < threshold(n.first) ? (Z)0 : opsmith::rounded<Z>(__dmul_rn((double)(opsmith::wide<X>)x, n.second));
    }
};

// A block of the generator makes 4 / Words elements. `x` has one for each, or is not looked at. Elements of both are read and written at
// once where the space says so.
template <typename Draw, int Words, typename X, typename Z, typename Index>
__global__ void drawn(const long long *seed, const long long *offset, const X *x, Z *z, Numbers numbers, opsmith::Space<Index, 1> space) {
    const int each = 4 / Words;
    OPSMITH_GRID_LOOP(Index, at, (space.count + each - 1) / each) {
        const Block block((Word2)*offset + (Word2)at, (Word2)*seed);
        const auto draw = [&](int n, X own) { return Draw::template of<Z, Words>(block.template of<Words>(n), own, numbers); };
        const Index first = at * each;
        if (space.lanes == each && space.count - first >= each) {
            const auto from = opsmith::read<each>(x, space[first].at[0], space.strides[0][0]);
            opsmith::Pack<Z, each> to;
#pragma unroll
            for (int n = 0; n < each; n++) to.lane[n] = draw(n, from.lane[n]);
            opsmith::write(z, first, to);
        } else {
            for (int n = 0; n < each && first + n < space.count; n++) z[first + n] = draw(n, x[space[first + n].at[0]]);
        }
    }
}
