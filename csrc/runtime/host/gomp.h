// Taming libgomp's waiting threads.
#pragma once

namespace aotpack::runtime {

// libgomp's idle threads spin, by default for so long that calls become many times slower when cores are shared with
// other work. It reads its settings when it is loaded. So while an object of this class lives, GOMP_SPINCOUNT is set to
// a bounded spin, unless libgomp is there already or the user has chosen (OMP_WAIT_POLICY or GOMP_SPINCOUNT);
// afterwards the environment is as it was.
//
// Changing the environment is not safe against getenv in other threads. It happens once in a process, around the load
// of its first module; set either variable beforehand to avoid it.
class BoundedGompSpin {
 public:
  BoundedGompSpin() noexcept;
  ~BoundedGompSpin();
  BoundedGompSpin(const BoundedGompSpin&) = delete;
  BoundedGompSpin& operator=(const BoundedGompSpin&) = delete;

 private:
  bool set_ = false;
};

// Keeps an OpenMP runtime that a module loaded until the process ends: its idle threads wait inside its code, also
// after the module that started them is unloaded.
void pin_openmp_runtime() noexcept;

}  // namespace aotpack::runtime
