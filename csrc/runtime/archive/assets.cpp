#include "archive/assets.h"

namespace aotpack::runtime {

std::vector<Bytes> Assets::of(const Archive& archive, const ModuleRecord& module, std::vector<bool>* verified) {
  std::vector<Bytes> ranges;
  for (const AssetRecord& asset : module.assets) {
    std::unique_ptr<MappedFile>& file = files_[asset.file];
    if (file == nullptr) {
      file = std::make_unique<MappedFile>(archive.code(asset.file));
      (*verified)[asset.file] = true;
    }
    ranges.push_back(file->bytes().subspan(asset.offset, asset.nbytes));
  }
  return ranges;
}

}  // namespace aotpack::runtime
