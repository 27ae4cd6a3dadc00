// What torch asks CUDA's library for when tensors are on a GPU: which device is current, and whether there is one.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace c10::impl {
namespace {
const Device GPU(DeviceType::CUDA, 0);
}
struct FakeGuard : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device getDevice() const override { return GPU; }
  Device exchangeDevice(Device) const override { return GPU; }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, GPU); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, GPU); }
};
C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard);
} // namespace c10::impl

namespace at {
struct CUDAHooks : CUDAHooksInterface { // the name by which torch looks it up
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
REGISTER_CUDA_HOOKS(CUDAHooks);
} // namespace at
