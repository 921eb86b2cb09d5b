// It does not compile, as a test wants it.
__global__ void wrong(float *x) {
    x[0] = undeclared;
}
