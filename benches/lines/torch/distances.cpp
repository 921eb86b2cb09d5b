// Pairwise Manhattan distances and their gradient as operators of PyTorch, the way its guide to C++ operators does it.

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

namespace {

void check(const at::Tensor& x, const at::Tensor& y) {
  TORCH_CHECK(x.dim() == 2, "x must have rank 2, got ", x.dim());
  TORCH_CHECK(y.dim() == 2, "y must have rank 2, got ", y.dim());
  TORCH_CHECK(x.size(1) == y.size(1), "x and y must have as many columns, got ", x.size(1), " and ", y.size(1));
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "x and y must have one dtype");
}

at::Tensor distance(const at::Tensor& x_any, const at::Tensor& y_any) {
  check(x_any, y_any);
  const at::Tensor x = x_any.contiguous(), y = y_any.contiguous();
  const int64_t n = x.size(0), m = y.size(0), p = x.size(1);
  at::Tensor z = at::empty({n, m}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pairwise_distance", [&] {
    const scalar_t* xs = x.const_data_ptr<scalar_t>();
    const scalar_t* ys = y.const_data_ptr<scalar_t>();
    scalar_t* zs = z.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j) {
        scalar_t sum = 0;
        for (int64_t k = 0; k < p; ++k) sum += std::abs(xs[i * p + k] - ys[j * p + k]);
        zs[i * m + j] = sum;
      }
  });
  return z;
}

std::tuple<at::Tensor, at::Tensor> distance_grad(const at::Tensor& x_any, const at::Tensor& y_any,
                                                 const at::Tensor& z_grad_any) {
  check(x_any, y_any);
  const at::Tensor x = x_any.contiguous(), y = y_any.contiguous(), z_grad = z_grad_any.contiguous();
  const int64_t n = x.size(0), m = y.size(0), p = x.size(1);
  TORCH_CHECK(z_grad.sizes() == at::IntArrayRef({n, m}), "z_grad must be of the shape of the distances");
  TORCH_CHECK(z_grad.scalar_type() == x.scalar_type(), "z_grad must have the dtype of x");
  at::Tensor x_grad = at::zeros_like(x), y_grad = at::zeros_like(y);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pairwise_distance_grad", [&] {
    const scalar_t* xs = x.const_data_ptr<scalar_t>();
    const scalar_t* ys = y.const_data_ptr<scalar_t>();
    const scalar_t* gs = z_grad.const_data_ptr<scalar_t>();
    scalar_t* xg = x_grad.mutable_data_ptr<scalar_t>();
    scalar_t* yg = y_grad.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j)
        for (int64_t k = 0; k < p; ++k) {
          const scalar_t d = xs[i * p + k] - ys[j * p + k];
          const scalar_t s = gs[i * m + j] * scalar_t((d > 0) - (d < 0));
          xg[i * p + k] += s;
          yg[j * p + k] -= s;
        }
  });
  return {x_grad, y_grad};
}

}  // namespace

TORCH_LIBRARY(distances, m) {
  m.def("pairwise_distance(Tensor x, Tensor y) -> Tensor");
  m.def("pairwise_distance_grad(Tensor x, Tensor y, Tensor z_grad) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(distances, CPU, m) {
  m.impl("pairwise_distance", &distance);
  m.impl("pairwise_distance_grad", &distance_grad);
}
