// Bytes of bools that are neither 0 nor 1, at every entrance.
#include <doctest/doctest.h>

#include <numeric>

#include "base/bools.h"
#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::dtype_of;
using aotpack::Model;
using aotpack::MutableTensorView;
using aotpack::Shape;
using aotpack::TensorView;
using aotpack::Verify;
using Bytes = std::vector<uint8_t>;

namespace {

TensorView bools(const void* data, Shape shape, Shape strides = {}) {
  return TensorView(data, dtype_of<bool>(), std::move(shape), std::move(strides));
}

Bytes all_bytes(size_t count) {
  Bytes bytes(count);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

Bytes normal(Bytes bytes) {
  for (uint8_t& byte : bytes) byte = byte != 0;
  return bytes;
}

Bytes run(Context& context, const TensorView& mask, uint8_t flag, Bytes* marks, size_t entry = 0) {
  const auto outputs =
      context.run({mask, bools(&flag, {}), MutableTensorView(marks->data(), dtype_of<bool>(), {4})}, entry);
  const auto* data = outputs[0].data<uint8_t>();
  return Bytes(data, data + outputs[0].numel());
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TEST_CASE("are_bools and make_bools: every byte at every place of every length") {
  for (size_t length : {1u, 7u, 8u, 63u, 64u, 65u, 200u, 4096u, 4159u, 9000u}) {
    Bytes bytes(length);
    for (size_t i = 0; i < length; ++i) bytes[i] = i % 3 == 0;
    CHECK(aotpack::runtime::are_bools(bytes.data(), length));
    const size_t step = length > 256 ? 61 : 1;
    for (size_t at = 0; at < length; at += step) {
      const uint8_t before = bytes[at];
      const size_t first = length > 64 ? at % 256 : 0;
      for (size_t value = first; value < (length > 64 ? first + 1 : 256); ++value) {
        bytes[at] = static_cast<uint8_t>(value);
        if (aotpack::runtime::are_bools(bytes.data(), length) != (value <= 1))
          FAIL(length << " " << at << " " << value);
      }
      bytes[at] = before;
    }
    if (aotpack::runtime::are_bools(bytes.data(), length - 1) != true) FAIL(length);
    bytes.back() = 2;
    CHECK_FALSE(aotpack::runtime::are_bools(bytes.data(), length));
    aotpack::runtime::make_bools(bytes.data(), length);
    CHECK(aotpack::runtime::are_bools(bytes.data(), length));
    CHECK(bytes.back() == 1);
  }
  CHECK(aotpack::runtime::are_bools(nullptr, 0));
}

TEST_CASE("inputs: the module sees 0 and 1 for all 256 bytes, the caller's memory stays as it was") {
  Context context = context_of(bools_archive());
  const Bytes given = all_bytes(258);  // 86 rows of 3
  Bytes mask = given;
  Bytes marks = {0, 1, 1, 0};
  const Bytes constants = {0, 1, 1, 0, 1, 0, 0, 1};
  const Bytes dense = normal(given);
  CHECK(run(context, bools(mask.data(), {86, 3}), 1, &marks) == joined({dense, {1, 0, 1, 1, 0}, constants}));
  CHECK(mask == given);
  CHECK(marks == Bytes{1, 1, 1, 0});

  // What the caller gives is read through its strides: a transpose, rows backwards, one row again and again.
  CHECK(run(context, bools(mask.data(), {86, 3}, {1, 86}), 1, &marks).size() == 271);
  Bytes turned(258);
  for (size_t i = 0; i < 258; ++i) turned[i] = dense[i % 3 * 86 + i / 3];
  marks = {0, 0, 0, 0};
  CHECK(run(context, bools(mask.data(), {86, 3}, {1, 86}), 0, &marks) == joined({turned, Bytes(5), constants}));
  marks = {0, 0, 0, 0};
  CHECK(run(context, bools(mask.data() + 255, {86, 3}, {-3, 1}), 0, &marks)[255] == 0);
  marks = {0, 0, 0, 0};
  CHECK(run(context, bools(mask.data() + 2, {2, 3}, {0, 1}), 0, &marks) == joined({Bytes(6, 1), Bytes(5), constants}));
  marks = {0, 0, 0, 0};
  CHECK(run(context, bools(mask.data(), {86, 3}, {1, 86}), 0, &marks, 1) == joined({dense, Bytes(5), constants}));
  CHECK(mask == given);
  marks = {0, 0, 0, 0};
  CHECK(run(context, bools(nullptr, {0, 3}), 0, &marks) == joined({Bytes(5), constants}));

  for (unsigned byte = 0; byte < 256; ++byte) {
    marks = {0, 0, 0, 0};
    const Bytes row(3, static_cast<uint8_t>(byte));
    const uint8_t one = byte != 0;
    CHECK(run(context, bools(row.data(), {1, 3}), static_cast<uint8_t>(byte), &marks) ==
          joined({{one, one, one, one}, Bytes(4), constants}));
  }
}

TEST_CASE("an input that is written to comes back as 0 and 1") {
  Context context = context_of(bools_archive());
  const Bytes mask(3, 1);
  Bytes marks = {0xFF, 2, 0, 1};
  const Bytes seen = run(context, bools(mask.data(), {1, 3}), 1, &marks);
  CHECK(Bytes(seen.begin() + 4, seen.begin() + 8) == Bytes{1, 1, 0, 1});
  CHECK(marks == Bytes{0, 1, 0, 1});
}

TEST_CASE("a refused call leaves such an input alone") {
  Context context = context_of(bools_archive());
  const Bytes mask(3, 1);
  Bytes marks = {0xFF, 2, 0, 1};
  CHECK_THROWS(run(context, bools(mask.data(), {1, 2}), 1, &marks));
  CHECK(marks == Bytes{0xFF, 2, 0, 1});
}

TEST_CASE("state and weights: what is loaded becomes 0 and 1") {
  const TempFile file(bools_archive());
  Model model = Model::load(file.path());
  Context context(model);
  const Bytes mask(3, 1);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const Bytes given = {static_cast<uint8_t>(byte), 0, 1, static_cast<uint8_t>(255 - byte)};
    context.load_state({{"seen", bools(given.data(), {4})}});
    model.update_weights({{"keep", bools(given.data() + 3, {4}, {-1})}});
    Bytes marks = {0, 0, 0, 0};
    const Bytes seen = run(context, bools(mask.data(), {1, 3}), 1, &marks);
    const Bytes wanted = normal(given);
    CHECK(Bytes(seen.begin() + 8, seen.end()) == joined({Bytes(wanted.rbegin(), wanted.rend()), wanted}));
    CHECK(given[0] == byte);
  }
  model.reset_weights();
  context.reset();
  Bytes marks = {0, 0, 0, 0};
  const Bytes seen = run(context, bools(mask.data(), {1, 3}), 1, &marks);
  CHECK(Bytes(seen.begin() + 8, seen.end()) == Bytes{0, 1, 1, 0, 1, 0, 0, 1});
}

TEST_CASE("constants of an archive are checked at every load") {
  for (const Verify verify : {Verify::kCode, Verify::kFull}) {
    const auto in_weight = load_error(bools_archive({0, 1, 2, 0}), verify);
    CHECK(in_weight.code() == AOTPACK_MALFORMED_ARCHIVE);
    CHECK(message_of(in_weight).find("constant 'keep' is bool, but has bytes other than 0 and 1") != std::string::npos);
    CHECK(load_error(bools_archive({0, 1, 1, 0}, {0, 0, 0, 0xFF}), verify).code() == AOTPACK_MALFORMED_ARCHIVE);
  }
}
