// Runs a package of AOTInductor without Python: run_package layer.pt2 STEPS BATCH INPUTS
// Prints every result on a line of its own, for the input sin(0), sin(1), ... in the shape (STEPS, BATCH, INPUTS).
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>
#include <cstdlib>

int main(int count, char** words) {
  if (count != 5) return std::fprintf(stderr, "usage: run_package PACKAGE STEPS BATCH INPUTS\n"), 2;
  const c10::InferenceMode inference;
  const int64_t steps = std::atoll(words[2]), batch = std::atoll(words[3]), inputs = std::atoll(words[4]);
  torch::inductor::AOTIModelPackageLoader package(words[1]);
  const at::Tensor x = at::sin(at::arange(steps * batch * inputs, at::kFloat)).view({steps, batch, inputs});
  for (const at::Tensor& result : package.run({x})) {
    const at::Tensor flat = result.contiguous().view(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) std::printf("%.9g ", flat[i].item<float>());
    std::printf("\n");
  }
}
