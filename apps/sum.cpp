// SPDX-License-Identifier: Apache-2.0
#include "apps/sum.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "apps/command_line.h"
#include "apps/progress_bar.h"
#include "apps/sum_stream.h"

namespace rodeo::apps {
namespace {

constexpr const char* kName = "rodeo sum";

constexpr const char* kFooter = R"(
Examples:
  rodeo sum /usr/bin/*                    what sha256sum /usr/bin/* prints
  rodeo sum --back disk.img               each block also returns by Write chunk and is compared
  tar c . | rodeo sum                     standard input, as with "-"
  rodeo sum --engine soft:demo FILE       from an engine of another name

Files go to the engine by Read chunks: the engine pulls each block by RDMA from where it was read into. The exit status
is 1 when a file could not be read or did not come back as it was sent.
)";

/// Closes the file, unless it is standard input.
class InputFile {
 public:
  explicit InputFile(const std::string& name)
      : descriptor_(name == "-" ? STDIN_FILENO : ::open(name.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~InputFile() {
    if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

bool sum_file(SumStream& stream, const std::string& name, bool terminal) {
  const InputFile file(name);
  if (file.descriptor() < 0) {
    complain(kName, fmt::format("{}: {}", name, std::strerror(errno)));
    return false;
  }
  struct stat about = {};
  const bool sized = fstat(file.descriptor(), &about) == 0 && S_ISREG(about.st_mode);
  ProgressBar bar(name, sized ? static_cast<std::uint64_t>(about.st_size) : 0);
  SumStream::Progress progress;
  if (terminal) progress = [&bar](std::uint64_t done) { bar.draw(done); };
  const auto hash = stream.hash(file.descriptor(), progress);
  if (!hash) {
    complain(terminal ? "\r\033[Krodeo sum" : kName, fmt::format("{}: {}", name, hash.error().message()));
    return false;
  }
  std::string hex;
  for (const std::byte octet : *hash) hex += fmt::format("{:02x}", std::to_integer<unsigned>(octet));
  if (terminal) fmt::print(stderr, "\r\033[K");
  fmt::print("{}\n", sum_line(hex, name));
  return std::fflush(stdout) == 0;
}

}  // namespace

std::string sum_line(std::string_view hash_hex, std::string_view file_name) {
  std::string name;
  for (const char c : file_name) {
    if (c == '\\') {
      name += "\\\\";
    } else if (c == '\n') {
      name += "\\n";
    } else if (c == '\r') {
      name += "\\r";
    } else {
      name += c;
    }
  }
  const bool escaped = name.size() != file_name.size();
  return fmt::format("{}{}  {}", escaped ? "\\" : "", hash_hex, name);
}

void add_sum_options(CLI::App& app, SumOptions& options) {
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  options.engine = kDefaultAddress;
  app.add_option("files", options.files, "Files to read; \"-\", or none at all, is standard input")->type_name("FILE");
  app.add_option("--engine", options.engine, "Where the engine listens")->type_name("ADDRESS");
  app.add_flag("--back", options.back, "Have the engine return every block by Write chunk, and compare");
  app.add_option("--block", options.block_bytes, "Octets of a block, 4K to 64M; the engine may want less")
      ->transform(byte_size(4096, 64U << 20U));
  app.add_option("--in-flight", options.blocks_in_flight, "Blocks under way at once")->check(whole_number(1, 64));
  app.add_flag("--no-hugepages", options.no_hugepages, "Use ordinary pages");
}

int run_sum(const SumOptions& options) {
  SumStream::Setup setup;
  setup.address = options.engine;
  setup.block_bytes = options.block_bytes;
  setup.blocks_in_flight = options.blocks_in_flight;
  setup.back = options.back;
  setup.hugepages = !options.no_hugepages;
  const auto stream = SumStream::open(setup);
  if (!stream) {
    complain(kName, stream.error().message());
    return kExitFailure;
  }
  const bool terminal = isatty(STDERR_FILENO) == 1;
  bool all_well = true;
  const std::vector<std::string> standard_input{"-"};
  for (const std::string& name : options.files.empty() ? standard_input : options.files) {
    if (!sum_file(**stream, name, terminal)) all_well = false;
    if ((*stream)->useless()) break;
  }
  return all_well ? kExitOk : kExitFailure;
}

}  // namespace rodeo::apps
