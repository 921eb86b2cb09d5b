typedef float Number;
typedef unsigned short Stored;
DEVICE Number load(Stored s) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(s));
    return x;
}
DEVICE Stored store(Number x) {
    unsigned short s;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(s) : "f"(x));
    return s;
}
