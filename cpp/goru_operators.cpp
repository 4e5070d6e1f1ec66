// The operators of a GORU layer for programs without Python, such as one that runs a package of AOTInductor.
// docs/export.md says how to compile it. In Python the operators are those of `import goru`, and this file has no place.
//
// Forward passes on the CPU, in float32 and float64. What it checks and hands over is what kernels/native/call.py and
// kernels/goru/native.py do.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "goru/structures.h"

extern "C" {
int goru_levels();
int goru_level_runs(int level);
void goru_choose(int level);
int64_t goru_sizeof_GoruForward();
int64_t goru_sizeof_GoruSizes();
void goru_goru_sizes(int dtype, int gates, const Transition*, int64_t inputs, int64_t hidden, GoruSizes*);
void goru_goru_pack(int dtype, int gates, const void* weight_ih, const void* weight_hh, const void* u, int64_t inputs,
                    int64_t hidden, void* out);
void goru_goru_mesh(int dtype, const Transition*, int64_t hidden, const void* angles, void* out);
void goru_goru_forward(int dtype, const GoruForward*);
}

namespace {

using at::Tensor;
using Maybe = std::optional<Tensor>;

constexpr int64_t kUnpackedRows = 8;   // up to this many rows (t, b) the weights are read as they are
constexpr double kThreadFlops = 2e6;   // least work that is worth waking a thread for

// The widest instruction set that this processor has; false if the library is of another version than this file.
bool prepare() {
  for (int level = 0; level < goru_levels(); ++level)
    if (goru_level_runs(level)) goru_choose(level);
  return goru_sizeof_GoruForward() == sizeof(GoruForward) && goru_sizeof_GoruSizes() == sizeof(GoruSizes);
}

Tensor checked(const char* name, const Tensor& tensor, at::IntArrayRef shape, at::ScalarType dtype) {
  TORCH_CHECK(tensor.device().is_cpu() && tensor.scalar_type() == dtype && tensor.sizes() == shape, "goru needs ", name,
              " of shape ", shape, " and dtype ", dtype, " on the CPU, got ", tensor.sizes(), ", ", tensor.scalar_type(),
              " on ", tensor.device());
  return tensor.contiguous();
}

const void* address(const Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }

int64_t mesh_layers(const std::string& kind, int64_t size, std::optional<int64_t> capacity) {
  if (kind != "fft") return capacity.value();
  int64_t layers = 0;
  while ((int64_t(1) << layers) < size) ++layers;
  return layers;
}

Tensor mesh_matrix(const Tensor& angles, std::string kind, int64_t size, std::optional<int64_t> capacity, bool complex,
                   std::string) {
  TORCH_CHECK(!complex, "goru_operators.cpp has no complex meshes");
  Tensor u = at::eye(size, angles.options());
  const int64_t layers = size > 1 ? mesh_layers(kind, size, capacity) : 0;
  for (int64_t layer = 0, at = 0; layer < layers; ++layer) {
    std::vector<int64_t> p;
    const int64_t distance = kind == "fft" ? int64_t(1) << (layers - 1 - layer) : 1;
    for (int64_t j = kind == "fft" ? 0 : layer % 2; j + distance < size; ++j)
      if ((kind == "fft" ? j / distance : j - layer % 2) % 2 == 0) p.push_back(j);
    const int64_t pairs = p.size();
    const Tensor first = at::tensor(p, at::kLong), second = first + distance;
    const Tensor theta = angles.slice(0, at, at + pairs).unsqueeze(1), c = at::cos(theta), s = at::sin(theta);
    const Tensor a = u.index_select(0, first), b = u.index_select(0, second);
    u = u.index_copy(0, first, c * a - s * b).index_copy(0, second, s * a + c * b);
    at += pairs;
  }
  return u;
}

std::tuple<Tensor, Tensor> goru(const Tensor& x_, const Tensor& h0_, const Tensor& weight_ih_, const Maybe& weight_hh_,
                                const Maybe& bias_, const Maybe& u_, const Maybe& angles_, const Maybe& lengths_,
                                std::string kind, int64_t H, std::optional<int64_t> capacity, bool, bool reset,
                                bool update, bool reverse, std::optional<int64_t>, std::string) {
  static const bool ready = prepare();
  TORCH_CHECK(ready, "the library of goru's kernels is of another version than goru_operators.cpp");
  const at::ScalarType dtype = x_.scalar_type();
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kDouble, "goru's kernels support float32 and float64, got ", dtype);
  TORCH_CHECK(x_.dim() == 3 && x_.size(0) > 0, "goru needs x of shape (T, B, I) with T > 0, got ", x_.sizes());
  TORCH_CHECK(u_.has_value() != angles_.has_value(), "goru needs either u or angles");
  const int64_t T = x_.size(0), B = x_.size(1), I = x_.size(2), G = 1 + reset + update;
  TORCH_CHECK(weight_hh_.has_value() == (G > 1), "goru needs weight_hh exactly when at least one gate is on");
  const Tensor x = checked("x", x_, {T, B, I}, dtype), h0 = checked("h0", h0_, {B, H}, dtype);
  const Tensor weight_ih = checked("weight_ih", weight_ih_, {G * H, I}, dtype);
  Tensor weight_hh, bias, u, angles, order, active, lengths;
  if (weight_hh_) weight_hh = checked("weight_hh", *weight_hh_, {(G - 1) * H, H}, dtype);
  if (bias_) bias = checked("bias", *bias_, {G * H}, dtype);
  if (u_) u = checked("u", *u_, {H, H}, dtype);
  Transition mesh{kMatrix, 0, nullptr};
  if (angles_) {
    mesh = {kind == "fft" ? kMeshFft : kMeshTunable, H > 1 ? mesh_layers(kind, H, capacity) : 0, nullptr};
    int64_t count = 0;  // of the rotations
    for (int64_t layer = 0; layer < mesh.layers; ++layer) {
      const int64_t distance = int64_t(1) << layer;
      count += mesh.kind == kMeshTunable ? (H - layer % 2) / 2
                                         : H / (2 * distance) * distance + std::max<int64_t>(0, H % (2 * distance) - distance);
    }
    angles = checked("angles", *angles_, {count}, dtype);
  }
  if (lengths_) {
    lengths = checked("lengths", *lengths_, {B}, at::kLong);
    TORCH_CHECK(B == 0 || (lengths.min().item<int64_t>() >= 1 && lengths.max().item<int64_t>() <= T),
                "lengths must lie between 1 and the ", T, " steps of the input");
    order = at::argsort(lengths, /*stable=*/true, 0, /*descending=*/true);
    active = (B - at::cumsum(at::bincount(lengths, {}, T + 1), 0).slice(0, 0, T)).contiguous();
  }
  Tensor output = at::empty({T, B, H}, x.options());
  if (B == 0) return {output, at::empty_like(h0)};

  const int code = dtype == at::kDouble, gates = reset + 2 * update;
  GoruSizes sizes;
  goru_goru_sizes(code, gates, &mesh, I, H, &sizes);
  const Tensor packed = T * B > kUnpackedRows ? at::empty({sizes.packed}, x.options()) : Tensor();
  const int64_t blocks = (B + sizes.block_rows - 1) / sizes.block_rows;
  const Tensor turned = at::empty({sizes.turned * blocks}, x.options()), table = at::empty({sizes.mesh}, x.options());
  if (packed.defined())
    goru_goru_pack(code, gates, address(weight_ih), address(weight_hh), address(u), I, H, packed.data_ptr());
  if (angles.defined()) goru_goru_mesh(code, &mesh, H, address(angles), table.data_ptr());
  mesh.table = address(table);
  const double flops = 2.0 * T * B * H * ((G - 1 + u.defined()) * H + G * I + 3 * mesh.layers + 20);
  const int64_t threads = std::max<int64_t>(1, std::min({int64_t(at::get_num_threads()), blocks,
                                                         int64_t(std::min(flops / kThreadFlops, 1e9))}));
  const Shape shape{T, B, I, H, reset, update, reverse, bias.defined(), 0, T, threads,
                    (const int64_t*)address(order), (const int64_t*)address(active), B * I, I, 0};
  const GoruForward call{shape, mesh, address(x), address(h0), address(bias), address(packed), address(weight_ih),
                         address(weight_hh), address(u), output.data_ptr(), nullptr, turned.data_ptr()};
  goru_goru_forward(code, &call);

  if (reverse) return {output, output.select(0, 0).clone()};
  if (!lengths.defined()) return {output, output.select(0, T - 1).clone()};
  return {output, output.index({lengths - 1, at::arange(B, at::kLong)})};
}

}  // namespace

// The schemas are those of `torch.ops.goru.*.default._schema` in Python; a test compares them.
TORCH_LIBRARY_FRAGMENT(goru, m) {
  m.def("goru(Tensor x, Tensor h0, Tensor weight_ih, Tensor? weight_hh, Tensor? bias, Tensor? u, Tensor? angles, "
        "Tensor? lengths, str kind, SymInt size, SymInt? capacity, bool complex, bool reset_gate, bool update_gate, "
        "bool reverse, SymInt? checkpoint, str backend) -> (Tensor, Tensor)");
  m.def("mesh_matrix(Tensor angles, str kind, SymInt size, SymInt? capacity, bool complex, str backend) -> Tensor");
}

TORCH_LIBRARY_IMPL(goru, CPU, m) {
  m.impl("goru", goru);
  m.impl("mesh_matrix", mesh_matrix);
}
