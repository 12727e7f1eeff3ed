// SPDX-License-Identifier: Apache-2.0
#include "pools/eal.h"

#include <fcntl.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>

#include "pools/core_set.h"
#include "pools/eal_log.h"
#include "pools/host_memory.h"
#include "pools/topology.h"

namespace rodeo::pools {
namespace {

constexpr const char* kWhere = "eal";

std::mutex start_mutex;
std::shared_ptr<Eal> started;       // kept to the end of the process: the EAL cannot start twice
std::optional<Error> start_failed;  // nor once more after it failed halfway

/// Which lcore id stands for which core, and which one for the calling thread.
struct LcorePlan {
  std::vector<std::pair<unsigned, unsigned>> lcore_of_core;  // (core, lcore)
  unsigned control = 0;
};

/// Gives core N the lcore id N where there is such an id, and any free id otherwise.
LcorePlan plan_lcores(std::span<const unsigned> cores) {
  std::vector<bool> taken(RTE_MAX_LCORE, false);
  for (const unsigned core : cores) {
    if (core < RTE_MAX_LCORE) taken[core] = true;
  }
  LcorePlan plan;
  unsigned next = 0;
  for (const unsigned core : cores) {
    unsigned lcore = core;
    if (core >= RTE_MAX_LCORE) {
      while (taken[next]) ++next;
      lcore = next;
      taken[lcore] = true;
    }
    plan.lcore_of_core.emplace_back(core, lcore);
  }
  plan.control = RTE_MAX_LCORE - 1;
  while (taken[plan.control]) --plan.control;
  return plan;
}

/// The --lcores text: one lcore pinned to each core, and the control lcore floating over all allowed cores.
std::string lcores_text(const LcorePlan& plan, std::span<const unsigned> allowed) {
  std::string text = std::to_string(plan.control) + "@(" + core_list_text(allowed) + ")";
  for (const auto& [core, lcore] : plan.lcore_of_core) {
    text.append(",").append(std::to_string(lcore)).append("@").append(std::to_string(core));
  }
  return text;
}

/// Sends what is written to file descriptor 2 nowhere while it lives: the EAL reports a failed start there besides its
/// log, and we report it in our own words.
class QuietStandardError {
 public:
  QuietStandardError() : saved_(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (saved_ >= 0 && nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    if (nowhere >= 0) close(nowhere);
  }
  QuietStandardError(const QuietStandardError&) = delete;
  QuietStandardError& operator=(const QuietStandardError&) = delete;
  ~QuietStandardError() {
    if (saved_ < 0) return;
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  }

 private:
  int saved_;
};

/// The EAL makes an empty run-time directory even where it keeps nothing in it. This removes it, and the parent too if
/// it was not there before.
class RuntimeDirectory {
 public:
  RuntimeDirectory() {
    const char* base = "/var/run";
    if (getuid() != 0) {
      base = std::getenv("XDG_RUNTIME_DIR");
      if (base == nullptr) base = "/tmp";
    }
    parent_ = std::string(base) + "/dpdk";
    std::error_code ignored;
    parent_was_there_ = std::filesystem::exists(parent_, ignored);
  }
  void remove(const std::string& prefix) const {
    rmdir((parent_ + "/" + prefix).c_str());
    if (!parent_was_there_) rmdir(parent_.c_str());
  }

 private:
  std::string parent_;
  bool parent_was_there_ = false;
};

}  // namespace

Result<std::shared_ptr<Eal>> Eal::start(const EalOptions& options) {
  const std::scoped_lock lock(start_mutex);
  if (started != nullptr) {
    if (auto checked = started->check_cores(options.cores); !checked) return tl::unexpected(checked.error());
    return started;
  }
  if (start_failed) return tl::unexpected(*start_failed);
  if (rte_lcore_count() != 0) {
    return fail(kWhere, "this process has initialised DPDK already", "borrow that one instead of starting another");
  }
  const auto topology = Topology::load();
  if (!topology) return tl::unexpected(topology.error());
  if (auto checked = topology->check_cores(options.cores); !checked) return tl::unexpected(checked.error());
  if (options.cores.size() >= RTE_MAX_LCORE) {
    return fail(kWhere, std::to_string(options.cores.size()) + " cores are too many",
                "choose at most " + std::to_string(RTE_MAX_LCORE - 1));
  }
  auto eal = initialise(options, topology->allowed_cores());
  if (eal) {
    started = *eal;
  } else {
    start_failed = eal.error();
  }
  return eal;
}

Result<std::shared_ptr<Eal>> Eal::initialise(const EalOptions& options, std::span<const unsigned> allowed) {
  std::vector<unsigned> cores = options.cores;
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  const LcorePlan plan = plan_lcores(cores);
  const std::string prefix = "rodeo-" + std::to_string(getpid());
  const bool hugepages = options.hugepages && host_hugepages().free > 0;

  std::vector<std::string> words{options.program,  "--no-pci",
                                 "--no-telemetry", "--iova-mode=va",
                                 "--lcores",       lcores_text(plan, allowed),
                                 "--main-lcore",   std::to_string(plan.control),
                                 "--file-prefix",  prefix};
  // Both leave no file behind; the EAL does not take --in-memory together with --no-huge, which implies legacy memory.
  const std::vector<std::string> memory = hugepages ? std::vector<std::string>{"--in-memory"}
                                                    : std::vector<std::string>{"--no-shconf", "--no-huge", "-m", "64"};
  words.insert(words.end(), memory.begin(), memory.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const auto count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);

  capture_eal_log();
  const RuntimeDirectory runtime;
  int result = 0;
  {
    const QuietStandardError quiet;
    result = rte_eal_init(count, arguments.data());
  }
  runtime.remove(prefix);
  if (result < 0) {
    return fail(kWhere, "DPDK did not start (" + std::string(rte_strerror(rte_errno)) + "): " + last_eal_log_line(),
                hugepages ? "free or reserve hugepages, or start without them" : "free some memory");
  }
  auto eal = std::make_shared<Eal>(Key{});
  for (const auto& [core, lcore] : plan.lcore_of_core) eal->add_core(core, lcore);
  return eal;
}

Result<std::shared_ptr<Eal>> Eal::borrow() {
  const std::scoped_lock lock(start_mutex);
  if (started != nullptr) return started;
  if (rte_lcore_count() == 0 || start_failed) {
    return fail(kWhere, "this process has not initialised DPDK", "call rte_eal_init first, or let Rodeo start it");
  }
  auto eal = std::make_shared<Eal>(Key{});
  constexpr int kSkipMain = 1;
  constexpr int kDoNotWrap = 0;
  constexpr unsigned kBeforeTheFirst = std::numeric_limits<unsigned>::max();
  for (unsigned lcore = rte_get_next_lcore(kBeforeTheFirst, kSkipMain, kDoNotWrap); lcore < RTE_MAX_LCORE;
       lcore = rte_get_next_lcore(lcore, kSkipMain, kDoNotWrap)) {
    const rte_cpuset_t cpus = rte_lcore_cpuset(lcore);
    if (CPU_COUNT(&cpus) != 1) continue;
    for (unsigned core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &cpus)) eal->add_core(core, lcore);
    }
  }
  return eal;
}

Result<void> Eal::check_cores(std::span<const unsigned> cores) const {
  for (const unsigned core : cores) {
    if (has_core(core)) continue;
    return fail(kWhere, "DPDK runs in this process already, without core " + std::to_string(core),
                "choose from " + core_list_text(this->cores()) + ", or name all cores at the first start");
  }
  return {};
}

std::vector<unsigned> Eal::cores() const {
  std::vector<unsigned> cores;
  for (const auto& [core, lcore] : lcores_) cores.push_back(core);
  return cores;
}

bool Eal::hugepages() const { return rte_eal_has_hugepages() != 0; }

int Eal::run_task(void* task) {
  Task& launched = *static_cast<Task*>(task);
  // DPDK orders launch and join already, but where no race checker sees it.
  static_cast<void>(launched.running.load(std::memory_order_acquire));  // acquire: pairs with the release in launch()
  launched.run(launched.argument);
  launched.running.store(false, std::memory_order_release);  // release: pairs with the acquire in join()
  return 0;
}

Result<void> Eal::launch(unsigned core, void (*run)(void*), void* argument) {
  const std::span<const unsigned> one(&core, 1);
  if (auto checked = check_cores(one); !checked) return checked;
  Lcore& lcore = lcores_.at(core);
  if (rte_eal_get_lcore_state(lcore.id) != WAIT) {
    return fail(kWhere, "core " + std::to_string(core) + " is busy", "join it first");
  }
  lcore.task->run = run;
  lcore.task->argument = argument;
  lcore.task->running.store(true, std::memory_order_release);
  if (rte_eal_remote_launch(run_task, lcore.task.get(), lcore.id) != 0) {
    return fail(kWhere, "core " + std::to_string(core) + " did not take the task", "join it first");
  }
  return {};
}

void Eal::join(unsigned core) {
  const auto at = lcores_.find(core);
  if (at == lcores_.end()) return;
  rte_eal_wait_lcore(at->second.id);
  static_cast<void>(at->second.task->running.load(std::memory_order_acquire));
}

}  // namespace rodeo::pools
