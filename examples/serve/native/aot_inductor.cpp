// Runs a model that AOTInductor has packaged, with ops of libraries: aot_inductor MODEL.pt2 [LIBRARY.so]...
//
// Reads a matrix of float32 from standard input, its rows and columns first, and writes the model's first output.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s MODEL.pt2 [LIBRARY.so]... < MATRIX\n", argv[0]);
        return 2;
    }
    // A package takes inputs of any shape and dtype otherwise, and computes something.
    setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 1);
    // Before the model: it looks its ops up when it is loaded.
    for (int i = 2; i < argc; i++) {
        if (!dlopen(argv[i], RTLD_NOW)) {
            std::fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    }
    int64_t rows = 0, columns = 0;
    if (!(std::cin >> rows >> columns) || rows < 0 || columns < 0) {
        std::fprintf(stderr, "expected the numbers of rows and columns\n");
        return 2;
    }
    try {
        c10::InferenceMode inference;
        torch::inductor::AOTIModelPackageLoader model(argv[1]);
        at::Tensor x = at::empty({rows, columns}, at::kFloat);
        float* numbers = x.data_ptr<float>();
        for (int64_t i = 0; i < x.numel(); i++) {
            if (!(std::cin >> numbers[i])) {
                std::fprintf(stderr, "expected %lld numbers\n", static_cast<long long>(x.numel()));
                return 2;
            }
        }
        at::Tensor y = model.run({x}).at(0).contiguous();
        for (int64_t dim : y.sizes()) std::printf("%lld ", static_cast<long long>(dim));
        std::printf("\n");
        for (int64_t i = 0; i < y.numel(); i++) std::printf("%.9g\n", y.data_ptr<float>()[i]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
