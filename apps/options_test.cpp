// SPDX-License-Identifier: Apache-2.0
// Command lines of both programs, without starting anything.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/bench_options.h"
#include "apps/command_line.h"
#include "apps/rodeod_options.h"
#include "apps/sum.h"

namespace rodeo::apps {
namespace {

/// What a parse left behind: its exit status, if it ended there, and standard error.
struct Outcome {
  std::optional<int> status;
  std::string error;
};

template <class Parse>
Outcome outcome_of(const std::vector<std::string>& words, Parse parse) {
  std::vector<const char*> argv;
  for (const auto& word : words) argv.push_back(word.c_str());
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  Outcome outcome;
  outcome.status = parse(static_cast<int>(argv.size()), argv.data());
  testing::internal::GetCapturedStdout();
  outcome.error = testing::internal::GetCapturedStderr();
  return outcome;
}

Outcome rodeod(std::vector<std::string> words, RodeodOptions& options) {
  words.insert(words.begin(), "rodeod");
  return outcome_of(words,
                    [&](int argc, const char* const* argv) { return parse_rodeod_options(argc, argv, options); });
}

Outcome bench(std::vector<std::string> words, BenchOptions& options) {
  words.insert(words.begin(), "bench");
  CLI::App app{"", "bench"};
  add_bench_options(app, options);
  return outcome_of(words, [&](int argc, const char* const* argv) { return parse_command_line(app, argc, argv); });
}

TEST(RodeodOptions, ServeSoftRodeoWhenNothingIsSaid) {
  RodeodOptions options;
  EXPECT_FALSE(rodeod({}, options).status.has_value());
  EXPECT_EQ(options.listen, std::vector<std::string>{"soft:rodeo"});
  EXPECT_TRUE(options.config.hugepages);
  EXPECT_EQ(options.config.registration, Registration::kNone);
  EXPECT_EQ(options.config.credits, 128U);
}

TEST(RodeodOptions, TakeCoresAsMasksAndLists) {
  RodeodOptions options;
  EXPECT_FALSE(rodeod({"--poll-cores", "0,2-3", "--worker-cores", "0x30"}, options).status.has_value());
  EXPECT_EQ(options.config.poll_cores, (std::vector<unsigned>{0, 2, 3}));
  EXPECT_EQ(options.config.worker_cores, (std::vector<unsigned>{4, 5}));
}

TEST(RodeodOptions, TakeEverythingElse) {
  RodeodOptions options;
  const auto outcome = rodeod({"--listen",
                               "soft:a",
                               "--listen",
                               "soft:b",
                               "--inline-send",
                               "8K",
                               "--inline-receive",
                               "16384",
                               "--credits",
                               "32",
                               "--connections",
                               "1000",
                               "--small-buffers",
                               "5000",
                               "--bulk-buffers",
                               "16",
                               "--bulk-bytes",
                               "4M",
                               "--remote-invalidation",
                               "--max-read",
                               "2M",
                               "--no-hugepages",
                               "--log-level",
                               "warn"},
                              options);
  EXPECT_FALSE(outcome.status.has_value()) << outcome.error;
  EXPECT_EQ(options.listen, (std::vector<std::string>{"soft:a", "soft:b"}));
  EXPECT_EQ(options.config.inline_send_bytes, 8192U);
  EXPECT_EQ(options.config.inline_receive_bytes, 16384U);
  EXPECT_EQ(options.config.credits, 32U);
  EXPECT_EQ(options.config.connections, 1000U);
  EXPECT_EQ(options.config.small_buffers, 5000U);
  EXPECT_EQ(options.config.bulk_buffers, 16U);
  EXPECT_EQ(options.config.bulk_bytes, 4U << 20U);
  EXPECT_EQ(options.config.registration, Registration::kRemoteInvalidation);
  EXPECT_EQ(options.config.max_read_bytes, 2U << 20U);
  EXPECT_FALSE(options.config.hugepages);
  EXPECT_EQ(options.log_level, "warn");
}

TEST(RodeodOptions, EndWithZeroAfterHelpAndVersion) {
  RodeodOptions options;
  EXPECT_EQ(rodeod({"--help"}, options).status, kExitOk);
  EXPECT_EQ(rodeod({"--version"}, options).status, kExitOk);
}

TEST(RodeodOptions, AnswerWrongInputWithOneLineThatSaysWhatIsAllowed) {
  const struct {
    std::vector<std::string> words;
    const char* said;
  } cases[] = {
      {{"--poll-cores", "zero"}, "0x5"},
      {{"--poll-cores", "0x0"}, "names no core"},
      {{"--poll-cores", "3-1"}, "3-1"},
      {{"--poll-cores", ""}, "mask"},
      {{"--worker-cores", "0,,1"}, "list"},
      {{"--credits", "0"}, "\"0\" is not allowed; use a whole number from 1 to 4096"},
      {{"--credits", "-1"}, "\"-1\" is not allowed"},
      {{"--connections", "many"}, "\"many\" is not allowed; use a whole number from 1 to 65536"},
      {{"--inline-send", "1000"}, "\"1000\" is not allowed; use a multiple of 1024 from 1K to 256K"},
      {{"--inline-receive", "512K"}, "from 1K to 256K"},
      {{"--bulk-bytes", "1"}, "use bytes from 4K to 256M"},
      {{"--bulk-bytes", "99999999999999999999"}, "use bytes from 4K to 256M"},
      {{"--log-level", "loud"}, "use debug, info, warn, error or off"},
      {{"--lisen", "soft:x"}, "--lisen"},
      {{"stray"}, "stray"},
      {{"--listen"}, "--listen"},
      {{"--rpcbind"}, "add an --export"},
  };
  for (const auto& bad : cases) {
    RodeodOptions options;
    const Outcome outcome = rodeod(bad.words, options);
    EXPECT_EQ(outcome.status, kExitUsage) << bad.words[0];
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
    EXPECT_TRUE(outcome.error.starts_with("rodeod: ")) << outcome.error;
    EXPECT_NE(outcome.error.find(bad.said), std::string::npos) << outcome.error;
  }
}

TEST(BenchOptions, HaveDefaultsThatMeasure) {
  BenchOptions options;
  EXPECT_FALSE(bench({"soft:rodeo"}, options).status.has_value());
  ASSERT_TRUE(finish_bench_options(options).has_value());
  EXPECT_EQ(options.cores.size(), 1U);
  EXPECT_EQ(options.window, 64U);
  EXPECT_EQ(options.mix.name, "null");
  EXPECT_EQ(window_per_connection(options), 64U);
}

TEST(BenchOptions, SpreadTheWindowOverConnections) {
  BenchOptions options;
  EXPECT_FALSE(bench({"soft:rodeo", "--connections", "1000", "--window", "256"}, options).status.has_value());
  EXPECT_EQ(window_per_connection(options), 1U);
  options.connections = 3;
  EXPECT_EQ(window_per_connection(options), 86U);
}

TEST(BenchOptions, AnswerWrongInputWithOneLine) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"soft:x", "--window", "0"},
                                             {"soft:x", "--window", "1e9"},
                                             {"soft:x", "--seconds", "-1"},
                                             {"soft:x", "--seconds", "nan"},
                                             {"soft:x", "--size", "2G"},
                                             {"soft:x", "--cores", "a"},
                                             {"soft:x", "--seconds", "1", "--count", "5"},
                                             {"soft:x", "--proc", "null", "--mix", "null=1"}}) {
    BenchOptions options;
    const Outcome outcome = bench(words, options);
    EXPECT_EQ(outcome.status, kExitUsage) << outcome.error;
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  }
}

TEST(BenchOptions, RefuseWhatTheCoresCannotShare) {
  BenchOptions options;
  EXPECT_FALSE(bench({"soft:x", "--cores", "0-3", "--connections", "3"}, options).status.has_value());
  auto finished = finish_bench_options(options);
  ASSERT_FALSE(finished.has_value());
  EXPECT_NE(finished.error().message().find("use --connections 4 or more"), std::string::npos);
  options.connections = 4;
  options.window = 2;
  finished = finish_bench_options(options);
  ASSERT_FALSE(finished.has_value());
  EXPECT_NE(finished.error().message().find("use --window 4 or more"), std::string::npos);
}

TEST(ByteSizes, TakeUnitsAndNothingElse) {
  EXPECT_EQ(parse_bytes("4096"), 4096U);
  EXPECT_EQ(parse_bytes("4k"), 4096U);
  EXPECT_EQ(parse_bytes("4M"), 4U << 20U);
  EXPECT_EQ(parse_bytes("1T"), std::uint64_t{1} << 40U);
  for (const char* bad :
       {"", "K", "4KB", "4 K", "-1", "0x10", "1.5K", "99999999999999999999", "18446744073709551615K"}) {
    EXPECT_FALSE(parse_bytes(bad).has_value()) << bad;
  }
}

TEST(HumanNumbers, KeepThreeDigitsAndAUnit) {
  EXPECT_EQ(human_ns(850), "850 ns");
  EXPECT_EQ(human_ns(1234), "1.23 us");
  EXPECT_EQ(human_ns(4.56e6), "4.56 ms");
  EXPECT_EQ(human_ns(1.2e9), "1.20 s");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(1 << 20), "1.0 MiB");
}

}  // namespace
}  // namespace rodeo::apps
