// What torch asks a card's library for when tensors are on a card: which device is the present one, and whether there is one.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace c10::impl {
namespace {
const Device CARD(DeviceType::CUDA, 0);
}
struct PretendedGuard : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device getDevice() const override { return CARD; }
  Device exchangeDevice(Device) const override { return CARD; }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, CARD); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, CARD); }
};
C10_REGISTER_GUARD_IMPL(CUDA, PretendedGuard);
} // namespace c10::impl

namespace at {
struct CUDAHooks : CUDAHooksInterface { // torch looks for one of this name
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
