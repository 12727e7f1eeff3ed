// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: an engine that serves NFS and one that calls it, in one thread, over the software HCA of this host.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/nfs/memory_store.h"
#include "apps/nfs/nfs_server.h"
#include "engine/test_pair.h"

namespace rodeo::nfs::test {

using rodeo::test::must;
using rodeo::test::Seen;

inline Credential user(std::uint32_t uid, std::uint32_t gid) {
  Credential credential;
  credential.flavor = AuthFlavor::kSys;
  credential.sys.machine_name = "tester";
  credential.sys.uid = uid;
  credential.sys.gid = gid;
  return credential;
}

/// A Reply and a reader over its results.
struct Answer {
  Seen seen;
  [[nodiscard]] bool ok() const { return seen.error == CallError::kNone && seen.accept_stat == AcceptStat::kSuccess; }
  [[nodiscard]] XdrReader reader() const { return XdrReader(seen.results); }
  [[nodiscard]] NfsStat3 status() const {
    if (!ok() || seen.results.size() < 4) {
      ADD_FAILURE() << "no status: " << to_string(seen.error) << ", accept_stat "
                    << static_cast<unsigned>(seen.accept_stat);
      return NfsStat3::kServerfault;
    }
    return static_cast<NfsStat3>(load_be32(seen.results.data()));
  }
  /// Behind the status.
  [[nodiscard]] XdrReader body() const {
    XdrReader in = reader();
    (void)in.u32();
    return in;
  }
};

/// Bulk data of one call, and what else it may need.
struct Bulk {
  std::vector<BulkSource> sources{};
  std::vector<RegisteredBytes> sinks{};
  std::size_t max_results = 900;
  bool long_call = false;
};

using Arguments = std::function<void(XdrWriter&)>;

class NfsPair {
 public:
  static constexpr std::size_t kBulkBytes = 1U << 20U;
  static constexpr std::size_t kStoreBytes = 8U << 20U;

  /// `make_exports` gets the memory that is the stores'.
  explicit NfsPair(const std::function<std::vector<Export>(Engine&, RegisteredBytes)>& make_exports,
                   std::uint32_t bulk_buffers = 8) {
    static int count = 0;
    address_ = "soft:nfs" + std::to_string(count++);
    Config config;
    config.hugepages = false;
    config.credits = 32;
    config.connections = 2;
    config.bulk_bytes = kBulkBytes + 4096;
    config.bulk_buffers = bulk_buffers;
    config.application_bytes = 2 * kStoreBytes;
    server = must(Engine::open(address_, config));
    nfs = must(NfsServer::add_to(*server, make_exports(*server, server->application_memory()), kBulkBytes));
    config.bulk_buffers = 8;
    config.application_bytes = 4 * kBulkBytes;
    client = must(Engine::open(address_, config));
    EXPECT_TRUE(server->start());
    EXPECT_TRUE(client->start());
    EXPECT_TRUE(server->listen(address_));
    connection = connect();
    EXPECT_TRUE(call(NfsProc3::kNull, {}).ok());  // from now on there is more than one credit
  }
  ~NfsPair() {
    client->stop();
    until([&] { return server->connection_count() == 0; });
    server->stop();
    for (Engine* engine : {client.get(), server.get()}) {
      const auto [adds_up, where] = engine->audit();
      EXPECT_TRUE(adds_up) << where;
    }
  }
  NfsPair(const NfsPair&) = delete;
  NfsPair& operator=(const NfsPair&) = delete;

  Connection* connect() {
    const std::uint64_t attempt = must(client->begin_connect(address_, 0, 0));
    for (int i = 0; i < 100'000; ++i) {
      turn();
      if (Connection* made = must(client->finish_connect(attempt))) return made;
    }
    ADD_FAILURE() << "no connection";
    return nullptr;
  }
  void turn() {
    server->step();
    client->step();
  }
  void until(const std::function<bool()>& done) {
    for (int i = 0; i < 2'000'000; ++i) {
      if (done()) return;
      turn();
    }
    ADD_FAILURE() << "it did not happen";
  }

  void submit(NfsProc3 proc, const Arguments& encode_arguments, const Bulk& bulk, Seen& seen) {
    const CallTarget target(kNfsProgram, kNfsVersion, static_cast<std::uint32_t>(proc), credential);
    std::vector<std::byte> storage(70'000);
    XdrWriter writer(storage);
    if (encode_arguments) encode_arguments(writer);
    ASSERT_TRUE(writer.ok());
    const CallRequest request{.target = &target,
                              .arguments = writer.written(),
                              .sources = bulk.sources,
                              .sinks = bulk.sinks,
                              .max_results = bulk.max_results,
                              .force_long_call = bulk.long_call,
                              .on_reply = Seen::on_reply,
                              .context = &seen};
    for (int i = 0; i < 100'000; ++i) {
      const SubmitOutcome outcome = connection->submit(request);
      if (outcome == SubmitOutcome::kPosted) return;
      ASSERT_TRUE(outcome != SubmitOutcome::kTooLarge && outcome != SubmitOutcome::kClosed) << to_string(outcome);
      turn();
    }
    FAIL() << "no room for the call";
  }
  Answer call(NfsProc3 proc, const Arguments& encode_arguments, const Bulk& bulk = Bulk()) {
    Answer answer;
    submit(proc, encode_arguments, bulk, answer.seen);
    until([&] { return answer.seen.times != 0; });
    return answer;
  }

  [[nodiscard]] FileHandle root(std::size_t index = 0) const {
    const Export& exported = nfs->exports()[index];
    return NfsServer::handle_on_wire(exported, exported.store->root());
  }
  static Arguments of_handle(const FileHandle& handle) {
    return [=](XdrWriter& out) { encode(out, handle); };
  }
  static Arguments of_name(const FileHandle& directory, const std::string& name) {
    return [=](XdrWriter& out) { encode(out, DirOpArgs3{directory.bytes(), name}); };
  }

  Fattr3 attributes(const FileHandle& handle) {
    const Answer answer = call(NfsProc3::kGetattr, of_handle(handle));
    EXPECT_EQ(answer.status(), NfsStat3::kOk);
    XdrReader in = answer.body();
    Fattr3 out;
    decode(in, out);
    EXPECT_TRUE(in.ok() && in.remaining() == 0);
    return out;
  }

  /// CREATE, MKDIR and their like: the new object's handle.
  std::pair<NfsStat3, FileHandle> make(NfsProc3 proc, const Arguments& encode_arguments, const Bulk& bulk = Bulk()) {
    const Answer answer = call(proc, encode_arguments, bulk);
    if (answer.status() != NfsStat3::kOk) return {answer.status(), FileHandle()};
    XdrReader in = answer.body();
    std::optional<FileHandle> handle;
    std::optional<Fattr3> made;
    WccData wcc;
    decode(in, handle);
    decode(in, made);
    decode(in, wcc);
    EXPECT_TRUE(in.ok() && in.remaining() == 0);
    EXPECT_TRUE(handle && made && wcc.before && wcc.after);
    return {NfsStat3::kOk, handle.value_or(FileHandle())};
  }
  FileHandle make_file(const FileHandle& directory, const std::string& name, std::uint32_t mode = 0644) {
    Sattr3 wanted;
    wanted.mode = mode;
    const auto [status, handle] = make(NfsProc3::kCreate, [&](XdrWriter& out) {
      encode(out, DirOpArgs3{directory.bytes(), name});
      out.enumeration(CreateMode3::kGuarded);
      encode(out, wanted);
    });
    EXPECT_EQ(status, NfsStat3::kOk) << to_string(status);
    return handle;
  }
  FileHandle make_directory(const FileHandle& directory, const std::string& name, std::uint32_t mode = 0755) {
    Sattr3 wanted;
    wanted.mode = mode;
    const auto [status, handle] = make(NfsProc3::kMkdir, [&](XdrWriter& out) {
      encode(out, DirOpArgs3{directory.bytes(), name});
      encode(out, wanted);
    });
    EXPECT_EQ(status, NfsStat3::kOk) << to_string(status);
    return handle;
  }

  static Arguments of_read(const FileHandle& file, std::uint64_t offset, std::uint32_t count) {
    return [=](XdrWriter& out) {
      encode(out, file);
      out.u64(offset);
      out.u32(count);
    };
  }
  struct ReadResult {
    NfsStat3 status = NfsStat3::kOk;
    std::vector<std::byte> data;
    bool eof = false;
  };
  /// READ with a Write chunk of `count` octets.
  ReadResult read(const FileHandle& file, std::uint64_t offset, std::uint32_t count) {
    const RegisteredBytes sink = client->application_memory().first(count);
    if (!sink.empty()) std::memset(sink.data(), 0x5a, sink.size());
    Bulk bulk;
    if (count != 0) bulk.sinks = {sink};
    bulk.max_results = 120;
    const Answer answer = call(NfsProc3::kRead, of_read(file, offset, count), bulk);
    ReadResult out;
    out.status = answer.status();
    if (out.status != NfsStat3::kOk) return out;
    XdrReader in = answer.body();
    std::optional<Fattr3> after;
    decode(in, after);
    const std::uint32_t length = in.u32();
    out.eof = in.boolean();
    EXPECT_EQ(in.u32(), length);  // of data<>, whose octets are in the chunk
    EXPECT_TRUE(in.ok() && in.remaining() == 0 && after);
    if (count != 0) {
      EXPECT_EQ(answer.seen.written.at(0), length);
    }
    out.data.assign(sink.begin(), sink.begin() + length);
    return out;
  }

  static Arguments of_write(const FileHandle& file, std::uint64_t offset, std::uint32_t count, std::uint32_t length) {
    return [=](XdrWriter& out) {
      encode(out, file);
      out.u64(offset);
      out.u32(count);
      out.enumeration(StableHow::kFileSync);
      out.u32(length);
    };
  }
  static std::size_t offset_of_data(const FileHandle& file) { return 4 + ((file.size + 3U) & ~3U) + 8 + 4 + 4 + 4; }
  struct WriteResult {
    NfsStat3 status = NfsStat3::kOk;
    std::uint32_t count = 0;
    WccData wcc;
  };
  static WriteResult decode_write(const Answer& answer) {
    WriteResult out;
    out.status = answer.status();
    XdrReader in = answer.body();
    decode(in, out.wcc);
    if (out.status == NfsStat3::kOk) {
      out.count = in.u32();
      (void)in.enumeration(StableHow::kFileSync);
      Verf3 verifier;
      decode(in, verifier);
    }
    EXPECT_TRUE(in.ok() && in.remaining() == 0);
    return out;
  }
  /// WRITE with a Read chunk.
  WriteResult write(const FileHandle& file, std::uint64_t offset, std::span<const std::byte> data) {
    const RegisteredBytes source = client->application_memory().subspan(2 * kBulkBytes, data.size());
    if (!data.empty()) std::memcpy(source.data(), data.data(), data.size());
    Bulk bulk;
    if (!data.empty()) bulk.sources = {{offset_of_data(file), source}};
    const auto length = static_cast<std::uint32_t>(data.size());
    return decode_write(call(NfsProc3::kWrite, of_write(file, offset, length, length), bulk));
  }

  Credential credential = user(1000, 100);
  std::unique_ptr<NfsServer> nfs;
  std::unique_ptr<Engine> server;
  std::unique_ptr<Engine> client;
  Connection* connection = nullptr;

 private:
  std::string address_;
};

inline std::vector<std::byte> pattern(std::size_t length, unsigned seed = 1) {
  std::vector<std::byte> out(length);
  for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>((i * 7 + (i >> 8U) * 13 + seed) & 0xffU);
  return out;
}

}  // namespace rodeo::nfs::test
