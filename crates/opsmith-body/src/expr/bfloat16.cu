typedef float Number;
typedef unsigned short Stored;
DEVICE Number load(Stored s) { return __uint_as_float((unsigned)s << 16); }
DEVICE Stored store(Number x) {
    // To the nearest, ties to even; cards before sm_80 have no instruction for it.
    unsigned bits = __float_as_uint(x);
    if (x != x) return (bits >> 16) | 0x40;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
