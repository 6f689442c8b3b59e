// A file that appears under its name when it is complete.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace aotpack::runtime {

// Writes beside the target and replaces it with a rename, so that the name always stands for a whole file: the old one
// or the new one, also after the process was killed or the machine lost power. No locks: of several writers the last
// rename wins.
//
// While it is written the file has no name where the file system allows that (O_TMPFILE): the kernel frees it when its
// writer is killed. Elsewhere it is `.NAME.RANDOM.aotpack-tmp`, with 64 random bits: it never collides with that of
// another writer, and what a killed writer left behind blocks no later one. A symbolic link is replaced, not followed.
// A file that is replaced hands its permissions on.
class NewFile {
 public:
  // All throw IO_ERROR or NOT_FOUND (there is no such folder), with the path.
  explicit NewFile(const std::string& path);
  // Deletes what is not committed.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, size_t bytes);
  // Flushes the file to the disk, renames it, and flushes the folder. When this throws, the target is the old file,
  // unless it was the flush of the folder that failed.
  void commit();

 private:
  [[noreturn]] void fail_with(const char* what) const;
  void open_temporary();
  void link_temporary();

  std::string path_;
  std::string folder_;
  std::string temporary_;  // its path; empty: it has no name
  mode_t mode_ = 0;        // of the file to be replaced; 0: there is none
  int fd_ = -1;
};

}  // namespace aotpack::runtime
