// Lets torch build and combine fake CUDA tensors on a machine without a GPU, and watches which backward node runs.
//
// torch asks two objects before it handles a CUDA tensor: the CUDA hooks (is there a device, which generator, which cuDNN)
// and the CUDA device guard (which device and stream are current). Both are replaced here by ones that ask no driver.
// The hooks have to be registered before libtorch_python is loaded, since torch keeps the first object it asks for; a
// higher priority than torch's own lets them win in a CUDA build. The guard is installed afterwards: there the last one wins.

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/RNN.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_cudnn_rnn.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <vector>

namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);
const c10::Stream kStream(c10::Stream::DEFAULT, kDevice);

// No random number is ever drawn from it: it keeps a seed, so that a script can set and read one.
struct SeedOnly final : c10::GeneratorImpl {
  explicit SeedOnly(uint64_t seed)
      : c10::GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::CUDA)), seed_(seed) {}
  void set_current_seed(uint64_t seed) override { seed_ = seed; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override { return seed_; }
  void set_state(const c10::TensorImpl&) override {}
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return at::globalContext().defaultGenerator(c10::DeviceType::CPU).getIntrusivePtr()->get_state();
  }
  SeedOnly* clone_impl() const override { return new SeedOnly(seed_); }

  uint64_t seed_;
  uint64_t offset_ = 0;
};

// Pinned memory is ordinary memory here, since nothing is ever copied out of it by a GPU; its addresses are kept, so that
// `is_pinned()` answers as it would.
struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* address = c10::GetCPUAllocator()->raw_allocate(bytes);
    const std::lock_guard<std::mutex> lock(mutex());
    addresses().insert(address);
    return {address, address, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  static bool holds(const void* address) {
    const std::lock_guard<std::mutex> lock(mutex());
    return addresses().count(address) != 0;
  }

 private:
  static void release(void* address) {
    {
      const std::lock_guard<std::mutex> lock(mutex());
      addresses().erase(address);
    }
    c10::GetCPUAllocator()->raw_deallocate(address);
  }
  // Neither is ever destroyed: tensors are freed after static objects are.
  static std::unordered_set<const void*>& addresses() {
    static auto* const known = new std::unordered_set<const void*>();
    return *known;
  }
  static std::mutex& mutex() {
    static auto* const one = new std::mutex();
    return *one;
  }
};

}  // namespace

namespace at {

// The registry wants the class by this name in this namespace.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  void deviceSynchronize(DeviceIndex) const override {}
  const Generator& getDefaultGenerator(DeviceIndex) const override {
    static const Generator generator = make_generator<SeedOnly>(0);
    return generator;
  }
  Generator getNewGenerator(DeviceIndex) const override { return make_generator<SeedOnly>(0); }
  Allocator* getPinnedMemoryAllocator() const override {
    static auto* const memory = new PinnedMemory();
    return memory;
  }
  bool isPinnedPtr(const void* address) const override { return PinnedMemory::holds(address); }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasMAGMA() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool hasCuSOLVER() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  bool supportsBFloat16RNNWithCuDNN() const override { return true; }
  // 9.15.1: what torch's CUDA 13 wheels bring along, as torch.backends.cudnn.version() counts.
  long versionCuDNN() const override { return 91501; }
  long versionRuntimeCuDNN() const override { return 91501; }
  std::string showConfig() const override { return "  - CUDA (none: the tensors are fake)\n"; }
  // CUDNN_BN_MIN_EPSILON of cuDNN's headers.
  double batchnormMinEpsilonCuDNN() const override { return 0.0; }
};

C10_REGISTER_TYPED_CREATOR_WITH_PRIORITY(
    CUDAHooksRegistry,
    "CUDAHooks",
    c10::REGISTRY_PREFERRED,
    ([](CUDAHooksArgs arguments) -> std::unique_ptr<CUDAHooksInterface> {
      return std::make_unique<CUDAHooks>(arguments);
    }));

}  // namespace at

namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return kStream; }
  c10::Stream getDefaultStream(c10::Device) const override { return kStream; }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return kStream; }
  c10::Stream getNewStream(c10::Device, int) const override { return kStream; }
  c10::Stream exchangeStream(c10::Stream) const override { return kStream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};

// A backward node is known by the thread that made it and its number there: numbers are counted in each thread apart.
struct Node {
  uint64_t thread = 0;
  int64_t sequence = -1;
  std::string name;
};

// Nodes running on this thread, the innermost last (a checkpoint runs a backward inside a backward), and the one that ran last.
thread_local std::vector<Node> running;
thread_local Node finished;

std::unique_ptr<at::ObserverContext> node_starts(const at::RecordFunction& node) {
  running.push_back({node.forwardThreadId(), node.seqNr(), node.name()});
  return nullptr;
}

void node_ends(const at::RecordFunction&, at::ObserverContext*) {
  // A node that only keeps a gradient has no number. It runs right after the node that made it, which thus stays
  // the last one.
  if (running.back().sequence >= 0) {
    finished = std::move(running.back());
  }
  running.pop_back();
}

// torch's own choice of the attention kernel asks the driver for the GPU. This one asks the dispatcher, where a dispatch mode answers.
int64_t choose_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool causal,
    std::optional<double> scale,
    bool grouped) {
  return at::_fused_sdp_choice(query, key, value, mask, dropout, causal, scale, grouped);
}

// The recurrent layers of a CUDA build call cuDNN from inside kernels that a CPU build lacks. These make the same call of ATen's;
// only the weights stay apart, where cuDNN's own lie in one buffer. The numbers are cuDNN's (cudnnRNNMode_t).
enum Cell : int64_t { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };
const std::optional<at::Tensor> kNoDropoutState;

// What autocast does of the weights (ATen/cudnn/AutocastRNN.cpp): at every call they are copied into one buffer of zeros, in half
// precision. The views are made past autograd, as torch makes them: their gradients go back through the copies alone.
struct Flat {
  at::Tensor buffer;
  std::vector<at::Tensor> views;
};

Flat cast_into_one_buffer(at::TensorList weights) {
  int64_t elements = 0;
  for (const auto& weight : weights) {
    elements += weight.numel();
  }
  Flat flat{at::zeros({elements}, weights[0].options().dtype(at::kHalf)), {}};
  int64_t offset = 0;
  for (const auto& weight : weights) {
    flat.views.push_back([&] {
      const at::AutoDispatchBelowADInplaceOrView past_autograd;
      return flat.buffer.narrow(0, offset, weight.numel()).view(weight.sizes());
    }());
    flat.views.back().copy_(weight);
    offset += weight.numel();
  }
  return flat;
}

// Autocast takes half precision for recurrent layers, also where bfloat16 was asked for (the same file). A CPU build lacks its
// kernel, and that of a CUDA build would ask cuDNN how the buffer is laid out, so it is passed over.
template <typename... Settings>
auto call_cudnn(
    const at::Tensor& input, at::TensorList weights, int64_t weights_a_layer, const at::Tensor& hx, const at::Tensor& cx,
    Settings... settings) {
  if (!at::autocast::is_autocast_enabled(at::kCUDA)) {
    return at::_cudnn_rnn(input, weights, weights_a_layer, {}, hx, cx, settings...);
  }
  const c10::impl::ExcludeDispatchKeyGuard past_autocast(c10::DispatchKey::AutocastCUDA);
  const auto cast = [](const at::Tensor& tensor) {
    return tensor.defined() ? at::autocast::cached_cast(at::kHalf, tensor, at::kCUDA) : tensor;
  };
  Flat flat;
  if (at::autocast::is_eligible(weights[0], at::kCUDA) && weights[0].scalar_type() != at::kHalf) {
    flat = cast_into_one_buffer(weights);
    weights = flat.views;
  }
  return at::_cudnn_rnn(cast(input), weights, weights_a_layer, flat.buffer, cast(hx), cast(cx), settings...);
}

template <Cell cell>
void run_rnn(
    at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx, at::TensorList weights, bool biases,
    int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const auto results = call_cudnn(
      input, weights, biases ? 4 : 2, hx, {}, cell, hx.size(2), 0, layers, batch_first, dropout, train, bidirectional,
      at::IntArrayRef{}, kNoDropoutState);
  output = std::get<0>(results);
  hy = std::get<1>(results);
}

template <Cell cell>
void run_packed_rnn(
    at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& batch_sizes, const at::Tensor& hx,
    at::TensorList weights, bool biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const at::IntArrayRef sizes(batch_sizes.const_data_ptr<int64_t>(), batch_sizes.numel());
  const auto results = call_cudnn(
      input, weights, biases ? 4 : 2, hx, {}, cell, hx.size(2), 0, layers, false, dropout, train, bidirectional, sizes,
      kNoDropoutState);
  output = std::get<0>(results);
  hy = std::get<1>(results);
}

void lstm(
    at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& input, at::IntArrayRef batch_sizes, at::TensorList hidden,
    at::TensorList weights, bool biases, int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const auto& hx = hidden[0];
  const auto& cx = hidden[1];
  const int64_t projection = hx.size(2) == cx.size(2) ? 0 : hx.size(2);
  const auto results = call_cudnn(
      input, weights, (biases ? 4 : 2) + (projection ? 1 : 0), hx, cx, kLstm, cx.size(2), projection, layers, batch_first,
      dropout, train, bidirectional, batch_sizes, kNoDropoutState);
  output = std::get<0>(results);
  hy = std::get<1>(results);
  cy = std::get<2>(results);
}

void run_lstm(
    at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& input, at::TensorList hidden, at::TensorList weights,
    bool biases, int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  lstm(output, hy, cy, input, {}, hidden, weights, biases, layers, dropout, train, bidirectional, batch_first);
}

void run_packed_lstm(
    at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& input, const at::Tensor& batch_sizes,
    at::TensorList hidden, at::TensorList weights, bool biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const at::IntArrayRef sizes(batch_sizes.const_data_ptr<int64_t>(), batch_sizes.numel());
  lstm(output, hy, cy, input, sizes, hidden, weights, biases, layers, dropout, train, bidirectional, false);
}

void replace_kernels() {
  using namespace at::native;
  _fused_sdp_choice_stub.set_cuda_dispatch_ptr(choose_attention);
  lstm_cudnn_stub.set_cuda_dispatch_ptr(run_lstm);
  lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(run_packed_lstm);
  gru_cudnn_stub.set_cuda_dispatch_ptr(run_rnn<kGru>);
  gru_packed_cudnn_stub.set_cuda_dispatch_ptr(run_packed_rnn<kGru>);
  rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(run_rnn<kTanh>);
  rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(run_packed_rnn<kTanh>);
  rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(run_rnn<kRelu>);
  rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(run_packed_rnn<kRelu>);
}

// DistributedDataParallel times its passes by CUDA events, for a log of its own. Of a device that has no timer (as in a CPU build)
// it takes no times.
void take_no_times() {
  static const bool once = [] {
    const auto none = [](c10::Device) { return std::unique_ptr<c10d::Timer>(); };
    c10d::TimerRegistry()->Register(c10::DeviceType::CUDA, none, c10::REGISTRY_PREFERRED);
    return true;
  }();
  static_cast<void>(once);
}

// What stood where the guard, its hooks and its callback stand, for `uninstall`.
const c10::impl::DeviceGuardImplInterface* before_guard = nullptr;
alignas(at::CUDAHooksInterface) unsigned char before_hooks[sizeof(at::CUDAHooksInterface)];
at::CallbackHandle watching = 0;

}  // namespace

extern "C" {

// Call after `import torch`, and again only after `uninstall`.
void install() {
  static Guard guard;
  before_guard = c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)].load();
  c10::impl::registerDeviceGuard(c10::DeviceType::CUDA, &guard);
  replace_kernels();
  take_no_times();
  // Only backward nodes are watched, so that no op pays for it.
  watching = at::addGlobalCallback(
      at::RecordFunctionCallback(node_starts, node_ends).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

// Call before `install` where torch was imported before this library: it keeps the hooks that it asked for first, so these
// become ours in place. Both classes hold nothing but their table of functions.
void replace_hooks() {
  static_assert(sizeof(at::CUDAHooks) == sizeof(at::CUDAHooksInterface));
  auto* const hooks = const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks());
  if (typeid(*hooks) == typeid(at::CUDAHooks)) {
    new (before_hooks) at::CUDAHooksInterface();  // torch had asked nobody yet
  } else {
    std::memcpy(before_hooks, static_cast<void*>(hooks), sizeof(before_hooks));
  }
  new (hooks) at::CUDAHooks(at::CUDAHooksArgs{});
}

// Undoes `install` and `replace_hooks`. A guard that came in the place of none stays: threads of the autograd engine may
// hold it.
void uninstall() {
  at::removeCallback(watching);
  if (before_guard != nullptr) {
    c10::impl::registerDeviceGuard(c10::DeviceType::CUDA, before_guard);
  }
  auto* const hooks = const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks());
  std::memcpy(static_cast<void*>(hooks), before_hooks, sizeof(before_hooks));
}

// The number under which backward nodes made on this thread know it.
uint64_t thread_number() { return at::RecordFunction::currentThreadId(); }

// How many backward nodes run on this thread, one inside the other.
uint64_t nodes_running() { return running.size(); }

// Of the node that runs on this thread. Call only while one does.
uint64_t running_thread() { return running.back().thread; }
int64_t running_sequence() { return running.back().sequence; }
const char* running_name() { return running.back().name.c_str(); }

// Of the node that this thread ran last: what the engine does with its gradients (cast, reduce, add up) comes after it.
uint64_t finished_thread() { return finished.thread; }
int64_t finished_sequence() { return finished.sequence; }
const char* finished_name() { return finished.name.c_str(); }
}
