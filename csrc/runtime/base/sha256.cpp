#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace aotpack::runtime {
namespace {

constexpr size_t kBlock = 64;

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<uint32_t, 8>;
using Compress = void (*)(State& state, const uint8_t* data, size_t blocks) noexcept;

void compress_portable(State& state, const uint8_t* data, size_t blocks) noexcept {
  for (; blocks > 0; --blocks, data += kBlock) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) w[i] = __builtin_bswap32(load<uint32_t>(data + 4 * i));
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const State add = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += add[i];
  }
}

#if defined(__x86_64__)
// Four rounds a step; the message schedule is kept in four registers that rotate. See Intel, "New Instructions
// Supporting the Secure Hash Algorithm on Intel Architecture Processors", 2013.
__attribute__((target("sha,sse4.1"))) void compress_sha_ni(State& state, const uint8_t* data, size_t blocks) noexcept {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  // The instructions want the state as ABEF and CDGH.
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&state[0]));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&state[4]));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);

  for (; blocks > 0; --blocks, data += kBlock) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 16 * i)), swap);
    }
#pragma GCC unroll 16
    for (int step = 0; step < 16; ++step) {
      const __m128i words = w[step & 3];
      __m128i sum = _mm_add_epi32(words, _mm_load_si128(reinterpret_cast<const __m128i*>(&kRound[4 * step])));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      sum = _mm_shuffle_epi32(sum, 0x0E);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, sum);
      if (step < 12) {
        // w[t+16..t+19] from w[t..t+15]; it takes the place of the four words just used.
        const __m128i next = w[(step + 1) & 3];
        const __m128i third = w[(step + 2) & 3];
        const __m128i last = w[(step + 3) & 3];
        __m128i schedule = _mm_sha256msg1_epu32(words, next);
        schedule = _mm_add_epi32(schedule, _mm_alignr_epi8(last, third, 4));
        w[step & 3] = _mm_sha256msg2_epu32(schedule, last);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }

  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[0]), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(dchg, feba, 8));
}

bool has_sha_ni() noexcept {
  unsigned a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSE4_1) == 0 || (c & bit_SSSE3) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}
#endif

Compress pick_compress() noexcept {
#if defined(__x86_64__)
  if (has_sha_ni()) return compress_sha_ni;
#endif
  return compress_portable;
}

Compress compress_of_host() noexcept {
  static const Compress compress = pick_compress();
  return compress;
}

// The rest of `size` bytes, a one bit, zeros, and the length in bits, big-endian.
Digest finish_with(Compress compress, State& state, const uint8_t* rest, uint64_t size) noexcept {
  uint8_t tail[2 * kBlock] = {};
  const size_t count = size % kBlock;
  if (count > 0) std::memcpy(tail, rest, count);
  tail[count] = 0x80;
  const size_t blocks = count + 9 <= kBlock ? 1 : 2;
  const uint64_t bits = __builtin_bswap64(size * 8);
  std::memcpy(tail + blocks * kBlock - 8, &bits, 8);
  compress(state, tail, blocks);
  Digest digest;
  for (size_t i = 0; i < 8; ++i) {
    const uint32_t word = __builtin_bswap32(state[i]);
    std::memcpy(&digest[4 * i], &word, 4);
  }
  return digest;
}

}  // namespace

void Sha256::add(Bytes data) noexcept {
  if (data.empty()) return;
  const size_t held = size_ % kBlock;
  size_ += data.size();
  if (held > 0) {
    const size_t count = std::min(kBlock - held, data.size());
    std::memcpy(rest_ + held, data.data(), count);
    data = data.subspan(count);
    if (held + count < kBlock) return;
    compress_of_host()(state_, rest_, 1);
  }
  const size_t whole = data.size() / kBlock;
  if (whole > 0) compress_of_host()(state_, data.data(), whole);
  const Bytes rest = data.subspan(whole * kBlock);
  if (!rest.empty()) std::memcpy(rest_, rest.data(), rest.size());
}

Digest Sha256::finish() noexcept { return finish_with(compress_of_host(), state_, rest_, size_); }

Digest sha256(Bytes data) noexcept {
  Sha256 hash;
  hash.add(data);
  return hash.finish();
}

Digest sha256_portable(Bytes data) noexcept {
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = data.size() / kBlock;
  if (whole > 0) compress_portable(state, data.data(), whole);
  return finish_with(compress_portable, state, data.data() + whole * kBlock, data.size());
}

std::string to_hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(64);
  for (const uint8_t byte : digest) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

bool from_hex(std::string_view text, Digest* out) noexcept {
  if (text.size() != 64) return false;
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  for (size_t i = 0; i < 32; ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*out)[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

}  // namespace aotpack::runtime
