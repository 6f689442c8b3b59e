#include "hal/executable.h"

#include <cstddef>
#include <utility>

#include "base/status.h"
#include "hal/features.h"
#include "hal/imports.h"

namespace aotpack::runtime {
namespace {

// Tables of version 1 end before this member.
constexpr size_t kTableSize1 = offsetof(aotpack_module, features);

// Before anything of the module runs.
void check_record(const ModuleRecord& record, DLDevice device, const std::string& what) {
  if (record.abi_version > AOTPACK_MODULE_ABI_VERSION) {
    fail(AOTPACK_UNSUPPORTED_VERSION, "%s: module ABI version %u; this runtime knows versions up to %u", what.c_str(),
         record.abi_version, AOTPACK_MODULE_ABI_VERSION);
  }
  if (record.abi_version < 2) {
    if (device.device_type != kDLCPU) {
      fail(AOTPACK_UNSUPPORTED_VERSION, "%s: a module of ABI version 1 runs on the CPU only", what.c_str());
    }
    if (!record.assets.empty() || !record.features.empty()) {
      fail(AOTPACK_MALFORMED_ARCHIVE, "%s: a module of ABI version 1 has no assets or features", what.c_str());
    }
  }
  for (const std::string& name : record.features) {
    if (find_feature(name) != 0) continue;
    fail(AOTPACK_UNSUPPORTED_VERSION,
         "%s: the module needs the feature '%s', which this runtime (%s) does not provide; it provides %s",
         what.c_str(), name.c_str(), AOTPACK_VERSION_STRING, feature_names());
  }
}

std::vector<void*> find_imports(const ModuleRecord& record, bool on_host, const std::string& what) {
  std::vector<void*> imports;
  for (const std::string& name : record.imports) {
    void* function = find_import(name, on_host);
    if (function == nullptr) {
      fail(AOTPACK_MISSING_IMPORT,
           "%s: the module imports '%s', which this runtime (%s) does not provide; it provides %s", what.c_str(),
           name.c_str(), AOTPACK_VERSION_STRING, import_names(on_host));
    }
    imports.push_back(function);
  }
  return imports;
}

const aotpack_module* query_table(const SharedObject& object, const std::string& what) {
  auto* query = reinterpret_cast<aotpack_module_query_fn>(object.find(AOTPACK_MODULE_QUERY_SYMBOL));
  if (query == nullptr) {
    fail(AOTPACK_MALFORMED_ARCHIVE, "%s: the module does not export " AOTPACK_MODULE_QUERY_SYMBOL, what.c_str());
  }
  const aotpack_module* table = query(AOTPACK_MODULE_ABI_VERSION);
  if (table == nullptr) {
    fail(AOTPACK_UNSUPPORTED_VERSION, "%s: the module does not serve ABI versions up to %u", what.c_str(),
         AOTPACK_MODULE_ABI_VERSION);
  }
  if (table->abi_version > AOTPACK_MODULE_ABI_VERSION) {
    fail(AOTPACK_UNSUPPORTED_VERSION,
         "%s: the module answers with ABI version %u; this runtime knows versions up to %u", what.c_str(),
         table->abi_version, AOTPACK_MODULE_ABI_VERSION);
  }
  return table;
}

std::vector<aotpack_module_asset> as_assets(const std::vector<Bytes>& ranges) {
  std::vector<aotpack_module_asset> assets;
  for (const Bytes bytes : ranges) assets.push_back({bytes.data(), bytes.size(), nullptr});
  return assets;
}

}  // namespace

Executable::Executable(ExecutableSource source)
    : device_(source.device),
      record_(source.record),
      what_(source.what),
      imports_((check_record(*source.record, source.device, source.what),
                find_imports(*source.record, source.device.device_type == kDLCPU, source.what))),
      assets_(as_assets(source.assets)),
      object_(std::move(source.code), source.what),
      table_(query_table(object_, source.what)) {
  check(*source.record, source.num_inputs, source.num_outputs, source.what);
}

aotpack_module_call Executable::call() const noexcept {
  aotpack_module_call call{};
  call.struct_size = sizeof call;
  call.imports = imports_.data();
  call.device = {device_.device_type, device_.device_id};
  call.assets = assets_.data();
  call.features = all_features();
  return call;
}

void Executable::check(const ModuleRecord& record, size_t num_inputs, size_t num_outputs,
                       const std::string& what) const {
  const auto bad = [&](const std::string& why) { throw Error(AOTPACK_MALFORMED_ARCHIVE, what + ": " + why); };
  if (table_->abi_version != record.abi_version) bad("its ABI version is not the manifest's");
  if (table_->struct_size < (table_->abi_version < 2 ? kTableSize1 : sizeof(aotpack_module))) {
    bad("its table is too small");
  }
  if (table_->target == nullptr || record.target != table_->target) bad("its target is not the manifest's");
  const auto count = [&](const char* name, uint32_t has, size_t wanted) {
    if (has != wanted) bad(format("it has %u %s, the manifest %zu", has, name, wanted));
  };
  count("inputs", table_->num_inputs, num_inputs);
  count("outputs", table_->num_outputs, num_outputs);
  count("constants", table_->num_constants, record.constants.size());
  count("imports", table_->num_imports, record.imports.size());
  for (size_t i = 0; i < record.imports.size(); ++i) {
    if (table_->import_names == nullptr || table_->import_names[i] == nullptr ||
        record.imports[i] != table_->import_names[i]) {
      bad(format("its import %zu is not the manifest's '%s'", i, record.imports[i].c_str()));
    }
  }
  if (table_->run == nullptr) bad("its table has no run function");
  if (record.assets != record_->assets) bad("its assets are not the same for all its uses");
  if (table_->abi_version >= 2) check_version_2(record, what);
}

void Executable::check_version_2(const ModuleRecord& record, const std::string& what) const {
  const auto bad = [&](const std::string& why) { throw Error(AOTPACK_MALFORMED_ARCHIVE, what + ": " + why); };
  uint64_t features = 0;
  for (const std::string& name : record.features) features |= find_feature(name);
  if (const uint64_t unknown = table_->features & ~all_features(); unknown != 0) {
    fail(AOTPACK_UNSUPPORTED_VERSION,
         "%s: the module needs features (bits 0x%llx) that this runtime (%s) does not provide; it provides %s",
         what.c_str(), static_cast<unsigned long long>(unknown), AOTPACK_VERSION_STRING, feature_names());
  }
  if (table_->features != features) bad("its features are not the manifest's");
  if (table_->num_assets != record.assets.size()) {
    bad(format("it has %u assets, the manifest %zu", table_->num_assets, record.assets.size()));
  }
  for (size_t i = 0; i < record.assets.size(); ++i) {
    if (table_->asset_names == nullptr || table_->asset_names[i] == nullptr ||
        record.assets[i].name != table_->asset_names[i]) {
      bad(format("its asset %zu is not the manifest's '%s'", i, record.assets[i].name.c_str()));
    }
  }
}

}  // namespace aotpack::runtime
