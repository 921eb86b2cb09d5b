#ifndef OPSMITH_FLOAT_TO_HALF
#define OPSMITH_FLOAT_TO_HALF(bits, x) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x))
#define OPSMITH_HALF_TO_FLOAT(x, bits) asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits))
#endif
typedef float Number;
typedef unsigned short Stored;
DEVICE Number load(Stored s) {
    float x;
    OPSMITH_HALF_TO_FLOAT(x, s);
    return x;
}
DEVICE Stored store(Number x) {
    unsigned short s;
    OPSMITH_FLOAT_TO_HALF(s, x);
    return s;
}
