// The container: any bytes are a container of that structure or refused, and nothing outside of them is read.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "archive/container.h"
#include "base/status.h"
#include "choices.h"
#include "seeds.h"

using namespace aotpack;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::start(data, size);
  tests::ArchiveWriter writer;
  writer.manifest = fuzz::object({{"format", "aotpack"}});
  for (size_t i = fuzz::pick(4); i > 0; --i) {
    writer.files.push_back({"weights/" + std::to_string(i), std::string(fuzz::pick(200), 'w')});
  }
  tests::Layout layout;
  std::string bytes = writer.build(&layout);
  for (size_t edits = fuzz::pick(4); edits > 0; --edits) {
    fuzz::damage(bytes, layout);
  }
  char* exact = static_cast<char*>(malloc(bytes.size()));
  memcpy(exact, bytes.data(), bytes.size());
  const runtime::Bytes file(reinterpret_cast<const uint8_t*>(exact), bytes.size());
  try {
    const runtime::Container container = runtime::read_container(file);
    runtime::check_padding(file, container);
    uint64_t end = 0;
    for (size_t i = 0; i < container.entries.size(); ++i) {
      const runtime::ContainerEntry& entry = container.entries[i];
      if (entry.padding_offset < end || entry.data_offset % 4096 != 0 || entry.data_offset > file.size() ||
          entry.size > file.size() - entry.data_offset) {
        abort();
      }
      end = entry.data_offset + entry.size;
    }
  } catch (const runtime::Error& error) {
    switch (error.code()) {
      case AOTPACK_FOREIGN_ARCHIVE:
      case AOTPACK_TRUNCATED_ARCHIVE:
      case AOTPACK_MALFORMED_ARCHIVE:
      case AOTPACK_UNSUPPORTED_VERSION:
        break;
      default:
        abort();
    }
  }
  free(exact);
  return 0;
}
