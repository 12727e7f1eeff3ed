// SPDX-License-Identifier: Apache-2.0
#pragma once

// The programs that an engine serves, laid out for lookup. Written before the loops start, read-only afterwards.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/program.h"
#include "engine/rpc_message.h"
#include "pools/result.h"

namespace rodeo {

class ProgramTable {
 public:
  /// Procedure numbers index a table, so they must be below this.
  static constexpr std::uint32_t kMaxProcedures = 1024;

  struct Lookup {
    const Procedure* procedure = nullptr;
    AcceptStat status = AcceptStat::kSuccess;  // why there is none
    std::uint32_t low = 0;                     // kProgMismatch: versions served
    std::uint32_t high = 0;
  };

  [[nodiscard]] Result<void> add(Program program) {
    if (program.procedures.empty()) return fail(program.name, "a program without procedures", "add at least NULL (0)");
    Entry entry{program.number, program.version, {}};
    for (Procedure& procedure : program.procedures) {
      if (procedure.number >= kMaxProcedures || procedure.handler == nullptr) {
        return fail(program.name,
                    "procedure " + std::to_string(procedure.number) + " has no handler or too high a number",
                    "give it a handler and a number below " + std::to_string(kMaxProcedures));
      }
      if (entry.procedures.size() <= procedure.number) entry.procedures.resize(procedure.number + 1);
      entry.procedures[procedure.number] = std::move(procedure);
    }
    for (const Entry& other : entries_) {
      if (other.number == entry.number && other.version == entry.version) {
        return fail(program.name,
                    "program " + std::to_string(entry.number) + " version " + std::to_string(entry.version) +
                        " is there already",
                    "add each version once");
      }
    }
    entries_.push_back(std::move(entry));
    return {};
  }

  /// Hot path. RFC 5531 §9: unknown program, version or procedure each have their own answer.
  [[nodiscard]] Lookup find(std::uint32_t program, std::uint32_t version, std::uint32_t procedure) const noexcept {
    for (const Entry& entry : entries_) {
      if (entry.number != program || entry.version != version) continue;
      if (procedure < entry.procedures.size() && entry.procedures[procedure].handler != nullptr) {
        return {&entry.procedures[procedure]};
      }
      return {nullptr, AcceptStat::kProcUnavail};
    }
    return explain(program);
  }

 private:
  struct Entry {
    std::uint32_t number;
    std::uint32_t version;
    std::vector<Procedure> procedures;  // by number; those without a handler are not served
  };

  [[nodiscard]] Lookup explain(std::uint32_t program) const noexcept {
    Lookup out{nullptr, AcceptStat::kProgUnavail, UINT32_MAX, 0};
    for (const Entry& entry : entries_) {
      if (entry.number != program) continue;
      out.status = AcceptStat::kProgMismatch;
      if (entry.version < out.low) out.low = entry.version;
      if (entry.version > out.high) out.high = entry.version;
    }
    return out;
  }

  std::vector<Entry> entries_;
};

}  // namespace rodeo
