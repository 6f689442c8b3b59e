#include "model/tunings.h"

#include <utility>

#include "base/status.h"
#include "host/processor.h"

namespace aotpack::runtime {

Tunings::Tunings(const Archive& archive) {
  const std::vector<FileRecord>& files = archive.manifest().files;
  size_t index = 0;
  while (index < files.size() && files[index].path != kTuningPath) ++index;
  if (index == files.size()) return;
  std::vector<TuningRecord> all;
  const std::string text = archive.text(index);
  try {
    all = parse_tuning(text);
  } catch (const Error& error) {
    throw Error(error.code(), archive.path() + ": " + std::string(kTuningPath) + ": " + error.message());
  }
  for (TuningRecord& record : all) {
    if (record.processor != processor()) continue;
    records_.push_back(std::move(record));
    const TuningRecord& kept = records_.back();
    TargetTuning& tuning = tunings_.emplace_back();
    tuning.threads = kept.threads;
    tuning.tuning.struct_size = sizeof tuning.tuning;
    tuning.tuning.choices = kept.choices.data();
    tuning.tuning.num_choices = kept.choices.size();
  }
}

std::vector<const TargetTuning*> Tunings::of(std::string_view target) const {
  std::vector<const TargetTuning*> found;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (records_[i].target == target && !records_[i].choices.empty()) found.push_back(&tunings_[i]);
  }
  return found;
}

}  // namespace aotpack::runtime
