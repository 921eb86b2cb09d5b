// Pairwise Manhattan distances and their gradient as operators of TensorFlow, the way its guide "Create an op" does it.

#include <algorithm>
#include <cmath>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("PairwiseDistance")
    .Attr("T: {float, double}")
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle x, y;
      DimensionHandle columns;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &x));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &y));
      TF_RETURN_IF_ERROR(c->Merge(c->Dim(x, 1), c->Dim(y, 1), &columns));
      c->set_output(0, c->Matrix(c->Dim(x, 0), c->Dim(y, 0)));
      return absl::OkStatus();
    });

REGISTER_OP("PairwiseDistanceGrad")
    .Attr("T: {float, double}")
    .Input("x: T")
    .Input("y: T")
    .Input("z_grad: T")
    .Output("x_grad: T")
    .Output("y_grad: T")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(0));
      c->set_output(1, c->input(1));
      return absl::OkStatus();
    });

void Check(OpKernelContext* context, const Tensor& x, const Tensor& y) {
  OP_REQUIRES(context, x.dims() == 2 && y.dims() == 2,
              absl::InvalidArgumentError("x and y must have rank 2"));
  OP_REQUIRES(context, x.dim_size(1) == y.dim_size(1),
              absl::InvalidArgumentError("x and y must have as many columns"));
}

template <typename T>
class PairwiseDistance : public OpKernel {
 public:
  explicit PairwiseDistance(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor &x = context->input(0), &y = context->input(1);
    Check(context, x, y);
    if (!context->status().ok()) return;
    const int64_t n = x.dim_size(0), m = y.dim_size(0), p = x.dim_size(1);
    Tensor* z = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({n, m}), &z));
    const T *xs = x.flat<T>().data(), *ys = y.flat<T>().data();
    T* zs = z->flat<T>().data();
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j) {
        T sum = 0;
        for (int64_t k = 0; k < p; ++k) sum += std::abs(xs[i * p + k] - ys[j * p + k]);
        zs[i * m + j] = sum;
      }
  }
};

template <typename T>
class PairwiseDistanceGrad : public OpKernel {
 public:
  explicit PairwiseDistanceGrad(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor &x = context->input(0), &y = context->input(1), &z_grad = context->input(2);
    Check(context, x, y);
    if (!context->status().ok()) return;
    const int64_t n = x.dim_size(0), m = y.dim_size(0), p = x.dim_size(1);
    OP_REQUIRES(context, z_grad.shape() == TensorShape({n, m}),
                absl::InvalidArgumentError("z_grad must be of the shape of the distances"));
    Tensor *x_grad = nullptr, *y_grad = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &x_grad));
    OP_REQUIRES_OK(context, context->allocate_output(1, y.shape(), &y_grad));
    const T *xs = x.flat<T>().data(), *ys = y.flat<T>().data(), *gs = z_grad.flat<T>().data();
    T *xg = x_grad->flat<T>().data(), *yg = y_grad->flat<T>().data();
    std::fill_n(xg, n * p, T(0));
    std::fill_n(yg, m * p, T(0));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j)
        for (int64_t k = 0; k < p; ++k) {
          const T d = xs[i * p + k] - ys[j * p + k];
          const T s = gs[i * m + j] * T((d > 0) - (d < 0));
          xg[i * p + k] += s;
          yg[j * p + k] -= s;
        }
  }
};

#define REGISTER(T)                                                                                        \
  REGISTER_KERNEL_BUILDER(Name("PairwiseDistance").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"),  \
                          PairwiseDistance<T>);                                                            \
  REGISTER_KERNEL_BUILDER(Name("PairwiseDistanceGrad").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
                          PairwiseDistanceGrad<T>)
REGISTER(float);
REGISTER(double);
#undef REGISTER

}  // namespace
