// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: names the requirements of protocol.md, or the rows of field-faults.md, that a test proves. They become
// properties of its test case in the JUnit file, where scripts/conformance finds them; a test that fails or does not
// run proves nothing.

#include <gtest/gtest.h>

#include <string>

namespace rodeo {

/// Inside a test, or a helper that it calls: `proves("R8166-4.5-1", "ENG-CR-11");`
template <class... Ids>
void proves(const Ids&... ids) {
  (::testing::Test::RecordProperty(std::string(ids), "proves"), ...);
}

}  // namespace rodeo
