// The peers written in C++, as PyTorch's own tutorials do it: an operator registered with TORCH_LIBRARY
// (namespace peer), and the same with a gradient by torch::autograd::Function (namespace peer_autograd).

#include <torch/extension.h>

#include <cmath>

namespace {

void check(const at::Tensor& x, const at::Tensor& y) {
  TORCH_CHECK(x.dim() == 2, "x must have rank 2, got ", x.dim());
  TORCH_CHECK(y.dim() == 2, "y must have rank 2, got ", y.dim());
  TORCH_CHECK(x.size(1) == y.size(1), "x and y must have as many columns");
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "x and y must have one dtype");
}

at::Tensor distance(const at::Tensor& x_any, const at::Tensor& y_any) {
  check(x_any, y_any);
  const at::Tensor x = x_any.contiguous(), y = y_any.contiguous();
  const int64_t n = x.size(0), m = y.size(0), p = x.size(1);
  at::Tensor z = at::empty({n, m}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pairwise_manhattan_distance", [&] {
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
                                                 const at::Tensor& g_any) {
  const at::Tensor x = x_any.contiguous(), y = y_any.contiguous(), g = g_any.contiguous();
  const int64_t n = x.size(0), m = y.size(0), p = x.size(1);
  at::Tensor x_grad = at::zeros_like(x), y_grad = at::zeros_like(y);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pairwise_manhattan_distance_grad", [&] {
    const scalar_t* xs = x.const_data_ptr<scalar_t>();
    const scalar_t* ys = y.const_data_ptr<scalar_t>();
    const scalar_t* gs = g.const_data_ptr<scalar_t>();
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

class Distance : public torch::autograd::Function<Distance> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& y) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({x, y});
    return distance(x, y);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    auto [x_grad, y_grad] = distance_grad(saved[0], saved[1], grads[0]);
    return {x_grad, y_grad};
  }
};

at::Tensor distance_autograd(const at::Tensor& x, const at::Tensor& y) { return Distance::apply(x, y); }

}  // namespace

TORCH_LIBRARY(peer, m) { m.def("pairwise_manhattan_distance(Tensor x, Tensor y) -> Tensor"); }
TORCH_LIBRARY_IMPL(peer, CPU, m) { m.impl("pairwise_manhattan_distance", &distance); }

TORCH_LIBRARY(peer_autograd, m) { m.def("pairwise_manhattan_distance(Tensor x, Tensor y) -> Tensor"); }
TORCH_LIBRARY_IMPL(peer_autograd, CPU, m) { m.impl("pairwise_manhattan_distance", &distance); }
TORCH_LIBRARY_IMPL(peer_autograd, Autograd, m) { m.impl("pairwise_manhattan_distance", &distance_autograd); }
