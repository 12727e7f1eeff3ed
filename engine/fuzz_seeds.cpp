// SPDX-License-Identifier: Apache-2.0
// Writes what the fuzz targets start from: fuzz_seeds FOLDER makes a folder for each target in it. Worked messages,
// sessions that go well, and, where they are at hand, the messages of recorded traffic.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>

#include "engine/capture_reader.h"
#include "engine/golden_messages.h"
#include "engine/private_data.h"

namespace rodeo {
namespace {

using golden::Octets;

class Folder {
 public:
  Folder(const std::filesystem::path& parent, const char* target) : path_(parent / target) {
    std::filesystem::create_directories(path_);
  }
  void add(std::span<const std::byte> octets) {
    std::ofstream file(path_ / ("seed-" + std::to_string(count_++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(octets.data()), static_cast<std::streamsize>(octets.size()));
  }

 private:
  std::filesystem::path path_;
  int count_ = 0;
};

void put(Octets& out, std::initializer_list<unsigned> octets) {
  for (const unsigned octet : octets) out.push_back(static_cast<std::byte>(octet));
}
/// A step of a session's script: a message and as many turns.
void step(Octets& out, unsigned turns, std::initializer_list<std::uint32_t> words) {
  const Octets message = golden::wire({words.begin(), words.size()});
  put(out, {turns, static_cast<unsigned>(message.size() >> 8U), static_cast<unsigned>(message.size() & 0xffU)});
  out.insert(out.end(), message.begin(), message.end());
}

constexpr std::uint32_t kProgram = 0x20000001;
constexpr std::uint32_t kKey = 0x4b455921;       // see fuzz_responder.cpp
constexpr std::uint32_t kXid0 = 0x58494430;      // see fuzz_requester.cpp
constexpr std::uint32_t kSegment0 = 0x53454730;  // see there

void responder_sessions(Folder& folder) {
  const auto session = [&](std::initializer_list<std::uint32_t> words) {
    Octets script;
    step(script, 4, words);
    folder.add(script);
    step(script, 2, {2, 1, 8, 0, 0, 0, 0, 2, 0, 2, kProgram, 1, 0, 0, 0, 0, 0});
    put(script, {0xfe});
    step(script, 6, words);
    folder.add(script);
  };
  session({1, 1, 8, 0, 0, 0, 0, 1, 0, 2, kProgram, 1, 0, 0, 0, 0, 0});
  session({1, 1, 8, 0, 0, 0, 0, 1, 0, 2, kProgram, 1, 4, 0, 0, 0, 0});
  session({1, 1, 8, 0, 0, 0, 0, 1, 0, 2, kProgram, 1, 1, 0, 0, 0, 0, 6, 0x61626364, 0x65660000});
  // ECHO with a Reply chunk of two segments
  session(
      {1, 1, 8, 0, 0, 0, 1, 2, kKey, 16, 0, 0, kKey, 4000, 0, 64, 1, 0, 2, kProgram, 1, 1, 0, 0, 0, 0, 4, 0x61626364});
  // MIRROR: a Read chunk in two segments at Position 44, and a Write chunk
  session({1,  1, 8,   0,    1,  44, kKey, 20, 0, 0, 1, 44, kKey,     21, 0, 100, 0, 1, 2, kKey,
           30, 0, 512, kKey, 30, 0,  1024, 0,  0, 1, 0, 2,  kProgram, 1,  2, 0,   0, 0, 0, 41});
  // GIVE into two Write chunks, of which one is empty
  session({1, 1, 8, 0, 0, 1, 1, kKey, 64, 0, 0, 1, 0, 0, 0, 1, 0, 2, kProgram, 1, 3, 0, 0, 0, 0, 2, 50});
  // a Long Call, whose memory holds nothing that makes sense, and one with a Reply chunk
  session({1, 1, 8, 1, 1, 0, kKey, 44, 0, 0, 0, 0, 0});
  session({1, 1, 8, 1, 1, 0, kKey, 44, 0, 0, 0, 0, 1, 1, kKey, 4096, 0, 4096});
  // other versions, errors, a Reply
  session({1, 2, 8, 0, 0, 0, 0});
  session({1, 1, 8, 4, 2});
  session({1, 1, 8, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0});
}

void requester_sessions(Folder& folder) {
  const auto session = [&](unsigned mask, std::initializer_list<std::uint32_t> words, bool write = false) {
    Octets script;
    put(script, {0, mask});
    put(script, {0xe2});
    if (write) put(script, {0xc1, 0, 0, 0, 32});
    if (write) script.insert(script.end(), 32, std::byte{7});
    step(script, 4, words);
    folder.add(script);
    step(script, 4, {kXid0 + 1, 1, 8, 0, 0, 0, 0, kXid0 + 1, 1, 0, 0, 0, 0});
    step(script, 4, words);
    folder.add(script);
  };
  for (unsigned shape = 0; shape < 8; ++shape) {
    session(1U << shape | 1U, {kXid0, 1, 8, 0, 0, 0, 0, kXid0, 1, 0, 0, 0, 0});
    session(1U << shape, {kXid0, 1, 8, 0, 0, 0, 0, kXid0, 1, 0, 0, 0, 0, 0});
  }
  session(0x04, {kXid0, 1, 8, 0, 0, 1, 1, kSegment0, 32, 0, 0, 0, 0, kXid0, 1, 0, 0, 0, 0, 32}, true);
  session(0x10, {kXid0, 1, 8, 1, 0, 0, 1, 1, kSegment0, 32, 0, 0}, true);
  session(0x40, {kXid0,         1, 8, 1, 0, 1, 1, kSegment0,     32, 0, 0, 1, 1,
                 kSegment0 + 1, 0, 0, 0, 0, 1, 1, kSegment0 + 2, 32, 0, 0},
          true);
  session(0xff, {kXid0, 1, 8, 4, 2});
  session(0xff, {kXid0, 1, 8, 4, 1, 1, 1});
  session(0x01, {kXid0, 1, 8, 0, 0, 0, 0, kXid0, 1, 1, 1, 1});
}

void connection_messages(Folder& folder) {
  for (unsigned files = 0; files < 8; ++files) {
    Octets script;
    put(script, {1, 0, 0, 0, 3, files | 8U, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0});
    folder.add(script);
  }
  for (unsigned type = 0; type < 9; ++type) {
    Octets script;
    put(script, {1, 0, 0, 0, type, 12U | 1U, 0, 16, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    folder.add(script);
  }
}

}  // namespace
}  // namespace rodeo

int main(int count, char** arguments) {
  using namespace rodeo;
  if (count != 2) return 2;
  const std::filesystem::path root = arguments[1];
  Folder headers(root, "transport_header");
  Folder messages(root, "rpc_message");
  Folder private_data(root, "private_data");
  for (const auto& message : golden::kMessages) {
    const Octets octets = golden::wire(message.words);
    headers.add(octets);
    messages.add(std::span(octets).subspan(message.header_bytes));
  }
  for (const std::uint32_t size : {1024U, 4096U, 262144U}) {
    private_data.add(
        encode_private_data({.send_size = size, .receive_size = 4096, .remote_invalidation = size > 4096}));
  }
  Folder responder(root, "responder");
  responder_sessions(responder);
  Folder requester(root, "requester");
  requester_sessions(requester);
  Folder cm_message(root, "cm_message");
  connection_messages(cm_message);

  const char* chosen = std::getenv("RODEO_CAPTURES");
  const std::filesystem::path captures = chosen != nullptr ? chosen : RODEO_CAPTURES_FOLDER;
  if (!std::filesystem::exists(captures)) return 0;
  constexpr int kPerRecording = 64;  // the rest is more of the same
  for (const auto& entry : std::filesystem::directory_iterator(captures)) {
    const auto read = capture::read_messages(entry.path());
    if (!read) continue;
    int taken = 0;
    for (const capture::Message& message : *read) {
      if (const auto data = capture::connection_data(message)) private_data.add(data->octets);
      if (message.management || message.octets.size() < 28 || ++taken > kPerRecording) continue;
      headers.add(message.octets);
      messages.add(std::span(message.octets).subspan(28));
    }
  }
  return 0;
}
