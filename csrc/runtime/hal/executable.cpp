#include "hal/executable.h"

#include <utility>

#include "base/status.h"
#include "hal/imports.h"

namespace aotpack::runtime {
namespace {

std::vector<void*> find_imports(const ModuleRecord& record, const std::string& what) {
  if (record.abi_version > AOTPACK_MODULE_ABI_VERSION) {
    fail(AOTPACK_UNSUPPORTED_VERSION, "%s: module ABI version %u; this runtime knows versions up to %u", what.c_str(),
         record.abi_version, AOTPACK_MODULE_ABI_VERSION);
  }
  std::vector<void*> imports;
  for (const std::string& name : record.imports) {
    void* function = find_import(name);
    if (function == nullptr) {
      fail(AOTPACK_MISSING_IMPORT,
           "%s: the module imports '%s', which this runtime (%s) does not provide; it provides %s", what.c_str(),
           name.c_str(), AOTPACK_VERSION_STRING, import_names());
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

}  // namespace

Executable::Executable(ExecutableSource source)
    : imports_(find_imports(*source.record, source.what)),
      object_(std::move(source.code), source.what),
      table_(query_table(object_, source.what)) {
  check(*source.record, source.num_inputs, source.num_outputs, source.what);
}

void Executable::check(const ModuleRecord& record, size_t num_inputs, size_t num_outputs,
                       const std::string& what) const {
  const auto bad = [&](const std::string& why) { throw Error(AOTPACK_MALFORMED_ARCHIVE, what + ": " + why); };
  if (table_->abi_version != record.abi_version) bad("its ABI version is not the manifest's");
  if (table_->struct_size < sizeof(aotpack_module)) bad("its table is too small");
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
}

}  // namespace aotpack::runtime
