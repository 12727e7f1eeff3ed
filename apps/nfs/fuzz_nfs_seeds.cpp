// SPDX-License-Identifier: Apache-2.0
// Writes what fuzz_nfs starts from: fuzz_nfs_seeds FOLDER makes the folder nfs in it. A session for each procedure,
// and, where recordings are at hand, one for each Call of NFS version 3 in them, with our handles in the place of
// theirs.

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "apps/nfs/nfs3.h"
#include "engine/capture_reader.h"
#include "engine/fuzz.h"
#include "engine/rpc_message.h"
#include "engine/transport_header.h"

namespace rodeo::nfs {
namespace {

using fuzz::Octets;
using Arguments = std::function<void(XdrWriter&)>;

// See fuzz_nfs.cpp.
constexpr std::size_t kHandleBytes = 20;
constexpr std::uint32_t kWriteChunk = 1;
constexpr std::uint32_t kReplyChunk = 2;
constexpr std::uint32_t kReadChunk = 4;
constexpr std::uint32_t kMnt = 23;
constexpr std::uint32_t kExport = 24;
constexpr std::uint32_t kTurns = 4;

// The handles that a session has in the end: two roots, then what begin() makes.
constexpr unsigned kRoot = 0;
constexpr unsigned kDirectory = 2;
constexpr unsigned kFile = 3;
constexpr unsigned kLink = 4;

FileHandle handle(unsigned index) {
  FileHandle out;
  out.size = kHandleBytes;
  out.octets = {std::byte{'H'}, std::byte{'N'}, std::byte{'D'}, static_cast<std::byte>(index)};
  return out;
}

class Script {
 public:
  Script& call(std::uint32_t index, std::uint32_t flags, std::span<const std::byte> args,
               std::uint32_t data_bytes = 0) {
    put({index * 8 + kTurns, flags});
    if ((flags & kReadChunk) != 0) put({data_bytes >> 8U, data_bytes & 0xffU});
    put({static_cast<std::uint32_t>(args.size() >> 8U), static_cast<std::uint32_t>(args.size() & 0xffU)});
    octets_.insert(octets_.end(), args.begin(), args.end());
    return *this;
  }
  Script& call(NfsProc3 proc, std::uint32_t flags, const Arguments& args, std::uint32_t data_bytes = 0) {
    std::array<std::byte, 2048> storage{};
    XdrWriter writer(storage);
    args(writer);
    return call(static_cast<std::uint32_t>(proc), flags, writer.written(), data_bytes);
  }
  [[nodiscard]] const Octets& octets() const { return octets_; }

 private:
  void put(std::initializer_list<std::uint32_t> octets) {
    for (const std::uint32_t octet : octets) octets_.push_back(static_cast<std::byte>(octet));
  }
  Octets octets_;
};

void name_in(XdrWriter& out, unsigned directory, std::string_view name) {
  encode(out, handle(directory));
  out.string(name);
}

Arguments write_args(std::uint64_t offset, std::uint32_t count, std::string_view data, bool by_chunk) {
  return [=](XdrWriter& out) {
    encode(out, handle(kFile));
    out.u64(offset);
    out.u32(count);
    out.enumeration(StableHow::kUnstable);
    if (by_chunk) out.u32(count);
    if (!by_chunk) out.string(data);
  };
}

/// Makes the objects that the other Calls are about.
Script begin() {
  Script script;
  script
      .call(NfsProc3::kMkdir, 0,
            [](XdrWriter& out) {
              name_in(out, kRoot, "d");
              encode(out, Sattr3{.mode = 0777});
            })
      .call(NfsProc3::kCreate, 0,
            [](XdrWriter& out) {
              name_in(out, kRoot, "f");
              out.enumeration(CreateMode3::kGuarded);
              encode(out, Sattr3{.mode = 0666});
            })
      .call(NfsProc3::kSymlink, 0, [](XdrWriter& out) {
        name_in(out, kDirectory, "l");
        encode(out, Sattr3{});
        out.string("../f");
      });
  return script;
}

using Add = std::function<void(const Script&)>;

void about_attributes(const Add& add) {
  for (const unsigned object : {kRoot, kDirectory, kFile}) {
    const Arguments only_handle = [&](XdrWriter& out) { encode(out, handle(object)); };
    Script script = begin();
    for (const NfsProc3 proc : {NfsProc3::kGetattr, NfsProc3::kFsstat, NfsProc3::kFsinfo, NfsProc3::kPathconf}) {
      script.call(proc, 0, only_handle);
    }
    script.call(NfsProc3::kAccess, 0x10, [&](XdrWriter& out) {
      only_handle(out);
      out.u32(0x3f);
    });
    add(script);
  }
  for (const std::uint64_t size : {0ULL, 5000ULL, 70'000ULL, 1ULL << 40U}) {
    add(begin()
            .call(NfsProc3::kWrite, 0, write_args(4090, 12, "twelve bytes", false))
            .call(NfsProc3::kSetattr, 0, [&](XdrWriter& out) {
              encode(out, handle(kFile));
              encode(out,
                     Sattr3{.mode = 0600, .uid = 1, .gid = 2, .size = size, .atime = {TimeHow::kSetToServerTime, {}}});
              out.boolean(false);
            }));
  }
}

void about_data(const Add& add) {
  for (const std::uint64_t offset : {0ULL, 4095ULL, 65'530ULL, 1ULL << 33U}) {
    Script script = begin();
    script.call(NfsProc3::kWrite, 0, write_args(offset, 12, "twelve bytes", false))
        .call(NfsProc3::kWrite, kReadChunk, write_args(offset + 8, 300, {}, true), 300);
    for (const std::uint32_t flags : {kWriteChunk, 0U, kReplyChunk}) {
      script.call(NfsProc3::kRead, flags, [&](XdrWriter& out) {
        encode(out, handle(kFile));
        out.u64(offset);
        out.u32(400);
      });
    }
    script.call(NfsProc3::kCommit, 0, [](XdrWriter& out) {
      encode(out, handle(kFile));
      out.u64(0);
      out.u32(0);
    });
    add(script);
  }
  for (const std::uint32_t flags : {0U, kWriteChunk, kReplyChunk}) {
    add(begin().call(NfsProc3::kReadlink, flags, [](XdrWriter& out) { encode(out, handle(kLink)); }));
  }
  add(begin().call(
      NfsProc3::kSymlink, kReadChunk,
      [](XdrWriter& out) {
        name_in(out, kRoot, "long");
        encode(out, Sattr3{});
        out.u32(200);
      },
      200));
}

void about_names(const Add& add) {
  add(begin().call(NfsProc3::kLookup, 0, [](XdrWriter& out) { name_in(out, kDirectory, ".."); }));
  for (const unsigned to : {kDirectory, kRoot}) {
    for (const std::string_view name : {"f", "d"}) {
      add(begin().call(NfsProc3::kRename, 0, [&](XdrWriter& out) {
        name_in(out, kRoot, name);
        name_in(out, to, "e");
      }));
    }
  }
  add(begin()
          .call(NfsProc3::kLink, 0,
                [](XdrWriter& out) {
                  encode(out, handle(kFile));
                  name_in(out, kDirectory, "hard");
                })
          .call(NfsProc3::kRemove, 0, [](XdrWriter& out) { name_in(out, kRoot, "f"); })
          .call(NfsProc3::kRmdir, 0, [](XdrWriter& out) { name_in(out, kRoot, "d"); }));
  for (const Ftype3 type : {Ftype3::kChr, Ftype3::kFifo}) {
    add(begin().call(NfsProc3::kMknod, 0x10, [&](XdrWriter& out) {
      name_in(out, kRoot, "node");
      out.enumeration(type);
      encode(out, Sattr3{});
      if (type == Ftype3::kChr) encode(out, Specdata3{1, 2});
    }));
  }
  add(begin().call(NfsProc3::kCreate, 0x10, [](XdrWriter& out) {
    name_in(out, kDirectory, "x");
    out.enumeration(CreateMode3::kExclusive);
    encode(out, Verf3{});
  }));
}

void about_lists(const Add& add) {
  for (const std::uint32_t flags : {0U, kReplyChunk}) {
    for (const NfsProc3 proc : {NfsProc3::kReaddir, NfsProc3::kReaddirplus}) {
      add(begin().call(proc, flags, [&](XdrWriter& out) {
        encode(out, handle(kRoot));
        out.u64(0);
        encode(out, Verf3{});
        out.u32(600);
        if (proc == NfsProc3::kReaddirplus) out.u32(1400);
      }));
    }
  }
  Script mount = begin();
  std::array<std::byte, 64> storage{};
  XdrWriter path(storage);
  path.string("/m");
  add(mount.call(kMnt, 0, path.written()).call(kExport, 0, {}));
}

/// A recorded Call with our handle in front of its arguments; all procedures but NULL have one there.
void recorded(const capture::Message& message, const Add& add) {
  TransportHeader header;
  ChunkLists lists;
  if (decode_call_header(message.octets, header, lists) != HeaderOutcome::kOk || header.proc != Proc::kMsg) return;
  const auto payload = std::span(message.octets).subspan(header.header_bytes);
  CallHeader call;
  if (decode_call(payload, call) != CallOutcome::kOk || call.program != kNfsProgram || call.version != kNfsVersion ||
      call.procedure == 0 || call.procedure > 21) {
    return;
  }
  XdrReader in(payload.subspan(call.args_offset));
  (void)decode_handle(in);
  if (!in.ok()) return;
  const auto proc = NfsProc3{call.procedure};
  const bool of_file =
      proc == NfsProc3::kRead || proc == NfsProc3::kWrite || proc == NfsProc3::kCommit || proc == NfsProc3::kSetattr;
  std::array<std::byte, 32> storage{};
  XdrWriter args(storage);
  encode(args, handle(of_file ? kFile : proc == NfsProc3::kReadlink ? kLink : kRoot));
  Octets octets(args.written().begin(), args.written().end());
  const auto rest = payload.subspan(call.args_offset + in.position());
  octets.insert(octets.end(), rest.begin(), rest.end());
  std::uint32_t flags = 0;
  if (lists.read_count != 0) flags |= kReadChunk;
  if (lists.write_chunk_count != 0) flags |= kWriteChunk;
  if (lists.reply_present) flags |= kReplyChunk;
  add(begin().call(call.procedure, flags, octets, static_cast<std::uint32_t>(lists.read_total % 513)));
}

void captured(const Add& add) {
  const char* chosen = std::getenv("RODEO_CAPTURES");
  const std::filesystem::path captures = chosen != nullptr ? chosen : RODEO_CAPTURES_FOLDER;
  if (!std::filesystem::exists(captures)) return;
  constexpr std::size_t kPerProcedure = 12;  // the rest is more of the same
  for (const auto& entry : std::filesystem::directory_iterator(captures)) {
    const auto read = capture::read_messages(entry.path());
    if (!read) continue;
    std::array<std::size_t, 32> taken{};
    for (const capture::Message& message : *read) {
      if (message.management) continue;
      recorded(message, [&](const Script& script) {
        const auto last_step = static_cast<std::size_t>(script.octets()[begin().octets().size()]) / 8;
        if (++taken[last_step] <= kPerProcedure) add(script);
      });
    }
  }
}

}  // namespace
}  // namespace rodeo::nfs

int main(int count, char** arguments) {
  using namespace rodeo::nfs;
  if (count != 2) return 2;
  const std::filesystem::path folder = std::filesystem::path(arguments[1]) / "nfs";
  std::filesystem::create_directories(folder);
  int written = 0;
  const Add add = [&](const Script& script) {
    std::ofstream file(folder / ("seed-" + std::to_string(written++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(script.octets().data()),
               static_cast<std::streamsize>(script.octets().size()));
  };
  about_attributes(add);
  about_data(add);
  about_names(add);
  about_lists(add);
  captured(add);
  return written == 0 ? 1 : 0;
}
