// An `npu` device in host memory, on PyTorch's PrivateUse1: what perfci's tests run on in place of an Ascend chip.
//
// Tensors have real addresses; what the device has no code for runs on the host's, by torch's own fallback. Time is the
// device's own: a clock that every launch moves on by what the launch is said to take, so that nothing that is timed here
// depends on how busy the host is. What was launched is kept as records, which the profiler's stand-in writes.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

namespace {

constexpr auto kNpu = c10::DeviceType::PrivateUse1;
constexpr auto kKey = c10::DispatchKey::PrivateUse1;

int64_t number(const char* name, int64_t fallback) {
  const char* value = std::getenv(name);
  return value && *value ? std::atoll(value) : fallback;
}

// ---- devices: ASCEND_RT_VISIBLE_DEVICES picks among NPU_STAND_IN_DEVICES

c10::DeviceIndex device_count() {
  static const c10::DeviceIndex count = [] {
    const auto all = number("NPU_STAND_IN_DEVICES", 1);
    const char* visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (!visible) return static_cast<c10::DeviceIndex>(all);
    int64_t seen = 0;
    std::stringstream text(visible);
    for (std::string part; std::getline(text, part, ',');) {
      if (part.empty() || std::atoll(part.c_str()) >= all || std::atoll(part.c_str()) < 0) break;
      ++seen;
    }
    return static_cast<c10::DeviceIndex>(seen);
  }();
  return count;
}

thread_local c10::DeviceIndex current_device = 0;
thread_local std::unordered_map<c10::DeviceIndex, c10::StreamId> current_streams;
std::atomic<c10::StreamId> next_stream{1};

c10::StreamId stream_of(c10::DeviceIndex index) {
  const auto found = current_streams.find(index);
  return found == current_streams.end() ? 0 : found->second;
}

// ---- time and records

struct Record {
  std::string name, type, core;
  int64_t start_ns, duration_ns, stream, blocks, bytes;
};

std::mutex state;
std::vector<Record> records;
int64_t clock_ns = 1'000'000;
uint64_t noise = 0x9E3779B97F4A7C15ull;

constexpr int64_t kGapNs = 400;
constexpr double kNoise = 0.004;

double jitter() {  // the sum of four uniform numbers, seeded: every process sees the same
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
    sum += static_cast<double>(noise >> 11) / static_cast<double>(1ull << 53) - 0.5;
  }
  return 1.0 + kNoise * sum;
}

void launched(const std::string& name, const std::string& type, const std::string& core, int64_t duration_ns,
              int64_t blocks, int64_t bytes) {
  const std::lock_guard<std::mutex> held(state);
  const auto took = std::max<int64_t>(static_cast<int64_t>(static_cast<double>(duration_ns) * jitter()), 20);
  records.push_back({name, type, core, clock_ns + kGapNs, took, stream_of(current_device), blocks, bytes});
  clock_ns += kGapNs + took;
}

// ---- memory: pages straight from the kernel, so that clearing a large buffer that nobody touched costs next to nothing

constexpr size_t kMapped = 1 << 20;
c10::CachingDeviceAllocator::DeviceStats stats;

void count(int64_t bytes) {
  auto add = [&](auto& all, int64_t amount) {
    auto& stat = all[0];
    stat.current += amount;
    stat.peak = std::max(stat.peak, stat.current);
    (amount > 0 ? stat.allocated : stat.freed) += std::abs(amount);
  };
  add(stats.allocated_bytes, bytes), add(stats.reserved_bytes, bytes), add(stats.active_bytes, bytes);
  add(stats.requested_bytes, bytes), add(stats.allocation, bytes > 0 ? 1 : -1);
}

struct Block {
  void* memory;
  size_t bytes;
};

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  {
    const std::lock_guard<std::mutex> held(state);
    count(-static_cast<int64_t>(block->bytes));
  }
  if (block->bytes >= kMapped) {
    munmap(block->memory, block->bytes);
  } else {
    std::free(block->memory);
  }
  delete block;
}

int64_t total_memory() {
  static const auto total = number("NPU_STAND_IN_MEMORY", int64_t{64} << 30);
  return total;
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t wanted) override {
    const c10::Device device(kNpu, current_device);
    if (!wanted) return {nullptr, nullptr, &release, device};
    const size_t bytes = (wanted + 511) / 512 * 512;
    {
      const std::lock_guard<std::mutex> held(state);
      TORCH_CHECK_WITH(OutOfMemoryError, stats.reserved_bytes[0].current + static_cast<int64_t>(bytes) <= total_memory(),
                       "NPU out of memory. Tried to allocate ", bytes, " bytes");
      count(static_cast<int64_t>(bytes));
    }
    void* memory = bytes >= kMapped ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                    : std::aligned_alloc(512, bytes);
    TORCH_CHECK(memory && memory != MAP_FAILED, "the host's memory ran out");
    return {memory, new Block{memory, bytes}, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const std::lock_guard<std::mutex> held(state);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    const std::lock_guard<std::mutex> held(state);
    for (auto* all : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes,
                      &stats.allocation}) {
      (*all)[0].peak = (*all)[0].current;
    }
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    const std::lock_guard<std::mutex> held(state);
    return {total_memory() - stats.reserved_bytes[0].current, total_memory()};
  }
};
Allocator allocator;
REGISTER_ALLOCATOR(kNpu, &allocator);

// ---- streams, events, guards

struct Event {
  int64_t at_ns;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNpu; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kNpu, current_device}; }
  void setDevice(c10::Device device) const override {
    if (device.index() < 0) return;
    TORCH_CHECK(device.index() < device_count(), "invalid device ordinal ", static_cast<int>(device.index()));
    current_device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  c10::Stream stream(c10::Device device, c10::StreamId id) const {
    const auto index = device.index() < 0 ? current_device : device.index();
    return c10::Stream(c10::Stream::UNSAFE, {kNpu, index}, id);
  }
  c10::Stream getStream(c10::Device device) const override {
    return stream(device, stream_of(device.index() < 0 ? current_device : device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return stream(device, next_stream++); }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream(device, next_stream++); }
  c10::Stream exchangeStream(c10::Stream wanted) const override {
    const auto before = getStream(wanted.device());
    current_streams[wanted.device_index()] = wanted.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new Event{};
    const std::lock_guard<std::mutex> held(state);
    static_cast<Event*>(*event)->at_ns = clock_ns;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    return static_cast<double>(static_cast<Event*>(second)->at_ns - static_cast<Event*>(first)->at_ns) / 1e6;
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- random numbers: the host's

struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index)
      : c10::GeneratorImpl(c10::Device(kNpu, index), c10::DispatchKeySet(kKey)),
        host(at::make_generator<at::CPUGeneratorImpl>()) {}
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& to) override {
    host.set_state(at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(const_cast<c10::TensorImpl*>(&to))));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.get_state().getIntrusivePtr(); }
  GeneratorImpl* clone_impl() const override {
    auto* made = new Generator(device().index());
    made->host = host.clone();
    return made;
  }
  at::Generator host;
};

at::Generator make_generator(c10::DeviceIndex index) { return at::make_generator<Generator>(std::max<int>(index, 0)); }

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { Guard().setDevice({kNpu, index}); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return Guard().exchangeDevice({kNpu, index}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const auto only = make_generator(0);
    return only;
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return make_generator(index); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto fresh = allocator.allocate(bytes);
    if (const auto kept = std::min(bytes, storage.nbytes())) std::memcpy(fresh.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.set_nbytes(bytes);
  }
};

// ---- operations

at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

// Of an operation of torch: a launch costs 2 us, memory 1 GB/s. A chip is a thousand times as fast; here that keeps
// kernels long enough for few rounds a block, and so the tests short.
constexpr double kNsPerByte = 1.0;

// What is larger is not computed, since the host would take seconds: perfci measures ceilings and raises the clock with
// such, and looks at no value. It is said to run at a chip's own pace.
constexpr size_t kTooLarge = 128 << 20;
constexpr double kNsPerLargeByte = 0.001;

void computed(const std::string& name, int64_t bytes, bool large = false) {
  const auto pace = large ? kNsPerLargeByte : kNsPerByte;
  launched("aclnn" + name, name, "AI_VECTOR_CORE", 2000 + static_cast<int64_t>(pace * static_cast<double>(bytes)), 48,
           bytes);
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator, c10::DispatchKeySet(kKey),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator,
                                           c10::DispatchKeySet(kKey), c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  const bool inside = from.is_privateuseone() && to.is_privateuseone();
  const bool large = inside && to.nbytes() >= kTooLarge;
  if (!large) on_host(to).copy_(on_host(from));
  if (inside) computed("InplaceCopy", static_cast<int64_t>(from.nbytes() + to.nbytes()), large);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) { return on_host(tensor).item(); }

at::Tensor& fill(at::Tensor& tensor, const at::Scalar& value) {
  auto* block = static_cast<Block*>(tensor.storage().data_ptr().get_context());
  const bool large = tensor.nbytes() >= kTooLarge;
  if (block && block->bytes >= kMapped && tensor.nbytes() == tensor.storage().nbytes() && tensor.is_contiguous() &&
      value.isIntegral(true) && value.toLong() == 0) {
    madvise(block->memory, block->bytes, MADV_DONTNEED);  // the kernel's zero pages
  } else if (!large) {
    on_host(tensor).fill_(value);
  }
  computed("InplaceFillScalar", static_cast<int64_t>(tensor.nbytes()), large);
  return tensor;
}

at::Tensor& zero(at::Tensor& tensor) { return fill(tensor, 0); }

const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = tensor.unsafeGetTensorImpl();
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  impl->set_sizes_contiguous(sizes);
  const size_t bytes = (impl->storage_offset() + impl->numel()) * impl->itemsize();
  if (bytes > impl->storage().nbytes()) Hooks().resizePrivateUse1Bytes(impl->storage(), bytes);
  return tensor;
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_sizes_and_strides(size, stride, offset);
  return tensor;
}

at::Tensor& set_whole(at::Tensor& tensor, at::Storage storage) {
  const auto size = static_cast<int64_t>(storage.nbytes() / tensor.itemsize());
  return set_storage(tensor, std::move(storage), 0, {c10::SymInt(size)}, {c10::SymInt(1)});
}

at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& source) {
  return set_storage(tensor, source.storage(), source.sym_storage_offset(), source.sym_sizes(), source.sym_strides());
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef size) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  std::optional<int64_t> start;
  if (offset) start = offset->expect_int();
  return at::native::as_strided_tensorimpl(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
}

at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

int64_t bytes_in(const torch::jit::Stack& stack, size_t from) {
  int64_t bytes = 0;
  for (size_t at = from; at < stack.size(); ++at) {
    if (stack[at].isTensor() && stack[at].toTensor().defined()) {
      bytes += static_cast<int64_t>(stack[at].toTensor().nbytes());
    }
  }
  return bytes;
}

std::string short_name(const c10::OperatorHandle& op) {
  const auto& name = op.schema().name();
  return name.substr(name.find("::") + 2);
}

void use_host_generator(torch::jit::Stack* stack) {
  for (auto& value : *stack) {
    if (value.isGenerator() && value.toGenerator().device().type() == kNpu) {
      value = static_cast<Generator*>(value.toGenerator().unsafeGetGeneratorImpl())->host;
    }
  }
}

// An operation that the device is said to have: the host computes it.
void operation(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  use_host_generator(stack);
  const auto first = stack->size() - op.schema().arguments().size();
  const auto read = bytes_in(*stack, first);
  at::native::cpu_fallback(op, stack);
  computed(short_name(op), read + bytes_in(*stack, first));
}

// An operation that it lacks: the host computes that too, and no record says so.
void lacked(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  use_host_generator(stack);
  TORCH_WARN_ONCE("CAUTION: The operator '", op.schema().name(),
                  "' is not currently supported on the NPU backend and will fall back to run on the CPU.");
  at::native::cpu_fallback(op, stack);
}

at::Tensor& add_out(const at::Tensor& left, const at::Tensor& right, const at::Scalar& factor, at::Tensor& out) {
  if (out.nbytes() < kTooLarge) {
    return at::native::call_fallback_fn<&operation, at::_ops::add_out>::call(left, right, factor, out);
  }
  computed("Add", static_cast<int64_t>(2 * out.nbytes()), true);
  return out;
}

at::Tensor& normal(at::Tensor& tensor, double mean, double deviation, std::optional<at::Generator> generator) {
  if (tensor.nbytes() < kTooLarge) {
    return at::native::call_fallback_fn<&operation, at::_ops::normal_>::call(tensor, mean, deviation, generator);
  }
  computed("InplaceNormal", static_cast<int64_t>(tensor.nbytes()), true);
  return tensor;
}

constexpr int64_t kLongProduct = int64_t{1} << 32;
constexpr double kNsPerProduct = 1.0 / 150'000;  // 300 TFLOP/s

at::Tensor product(const at::Tensor& left, const at::Tensor& right) {
  const auto products = left.size(0) * left.size(1) * right.size(1);
  if (products < kLongProduct) return at::native::call_fallback_fn<&operation, at::_ops::mm>::call(left, right);
  launched("aclnnMatmul", "MatMulV3", "AI_CORE",
           2000 + static_cast<int64_t>(kNsPerProduct * static_cast<double>(products)), 24, 0);
  return at::zeros({left.size(0), right.size(1)}, left.options());
}

const std::set<std::string> kOwn = {
    "empty.memory_format", "empty_strided", "_copy_from",    "_copy_from_and_resize",
    "_local_scalar_dense", "fill_.Scalar",  "zero_",         "resize_",
    "view",                "as_strided",    "_reshape_alias", "unfold",
    "add.out",             "normal_",       "mm",            "set_.source_Storage_storage_offset",
    "set_.source_Storage", "set_.source_Tensor",
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("fill_.Scalar", &fill);
  m.impl("zero_", &zero);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", &set_whole);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("view", &view);
  m.impl("as_strided", &as_strided);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("add.out", &add_out);
  m.impl("normal_", &normal);
  m.impl("mm", &product);
  // The device has what the host has, but for NPU_STAND_IN_LACKS: the names of operations, with commas in between.
  const char* named = std::getenv("NPU_STAND_IN_LACKS");
  const auto lacks = "," + std::string(named ? named : "") + ",";
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto plain = name.name.substr(6);
    const auto full = name.overload_name.empty() ? plain : plain + "." + name.overload_name;
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) || kOwn.count(full)) continue;
    if (lacks.find("," + plain + ",") != std::string::npos) continue;
    m.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&operation>());
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&lacked>()); }

struct Registered {
  Registered() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }
} registered;

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("launched", &launched, "Add a record and move the device's clock on.");
  m.def("forget", [] {
    const std::lock_guard<std::mutex> held(state);
    records.clear();
  });
  m.def("records", [] {
    const std::lock_guard<std::mutex> held(state);
    pybind11::list made;
    for (const auto& each : records) {
      made.append(pybind11::make_tuple(each.name, each.type, each.core, each.start_ns, each.duration_ns, each.stream,
                                       each.blocks, each.bytes));
    }
    return made;
  });
  m.def("stream", [] { return stream_of(current_device); });
  m.def("on_host", &on_host, "The same memory as a tensor of the host's; it does not keep the memory.");
  m.def("device_count", [] { return static_cast<int>(device_count()); });
}
