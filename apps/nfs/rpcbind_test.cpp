// SPDX-License-Identifier: Apache-2.0
// Registration, with an rpcbind of our own on a Unix socket: libtirpc's server, and a table.

#include "apps/nfs/rpcbind.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <rpc/rpc.h>
#include <rpc/rpcb_prot.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "pools/proves.h"

namespace rodeo::nfs {
namespace {

using Table = std::map<std::tuple<std::uint32_t, std::uint32_t, std::string>, std::string>;

class FakeRpcbind {
 public:
  FakeRpcbind() {
    char name[] = "/tmp/rodeo-rpcbind-XXXXXX";
    folder_ = ::mkdtemp(name);
    path = folder_ + "/socket";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket, 4), 0);
    transport_ = svc_vc_create(socket, 0, 0);
    EXPECT_NE(transport_, nullptr);
    present = this;
    EXPECT_TRUE(svc_reg(transport_, RPCBPROG, RPCBVERS4, &serve, nullptr));
    thread_ = std::thread([this] {
      while (!stop_) {
        std::vector<pollfd> fds(svc_pollfd, svc_pollfd + svc_max_pollfd);
        const int ready = ::poll(fds.data(), fds.size(), 10);
        if (ready > 0) svc_getreq_poll(fds.data(), ready);
      }
    });
  }
  FakeRpcbind(const FakeRpcbind&) = delete;
  FakeRpcbind& operator=(const FakeRpcbind&) = delete;
  ~FakeRpcbind() {
    stop_ = true;
    thread_.join();
    svc_unreg(RPCBPROG, RPCBVERS4);
    svc_destroy(transport_);
    ::unlink(path.c_str());
    ::rmdir(folder_.c_str());
  }

  Table table() {
    const std::scoped_lock lock(mutex_);
    return table_;
  }
  void put(const Service& service) {
    const std::scoped_lock lock(mutex_);
    table_[{service.program, service.version, service.netid}] = service.address;
  }

  std::string path;

 private:
  static void serve(svc_req* request, SVCXPRT* transport) {
    FakeRpcbind& self = *present;
    rpcb service{};
    const auto decode = reinterpret_cast<xdrproc_t>(&xdr_rpcb);
    if (!svc_getargs(transport, decode, reinterpret_cast<caddr_t>(&service))) return svcerr_decode(transport);
    const std::scoped_lock lock(self.mutex_);
    const Table::key_type key{static_cast<std::uint32_t>(service.r_prog), static_cast<std::uint32_t>(service.r_vers),
                              service.r_netid};
    bool_t truth = FALSE;
    if (request->rq_proc == RPCBPROC_GETADDR) {
      std::string found = self.table_.contains(key) ? self.table_[key] : "";
      char* text = found.data();
      svc_sendreply(transport, reinterpret_cast<xdrproc_t>(&xdr_wrapstring), reinterpret_cast<caddr_t>(&text));
    } else {
      truth = request->rq_proc == RPCBPROC_SET ? self.table_.emplace(key, service.r_addr).second
                                               : self.table_.erase(key) != 0;
      svc_sendreply(transport, reinterpret_cast<xdrproc_t>(&xdr_bool), reinterpret_cast<caddr_t>(&truth));
    }
    svc_freeargs(transport, decode, reinterpret_cast<caddr_t>(&service));
  }

  static inline FakeRpcbind* present = nullptr;
  std::string folder_;
  SVCXPRT* transport_ = nullptr;
  std::mutex mutex_;
  Table table_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::vector<Service> services() {
  std::vector<Service> out = mount_services(20'048);
  out.push_back({100'003, 3, "rdma", "192.0.2.1.78.81"});
  out.push_back({100'003, 3, "rdma6", "fd00:db8::1.78.81"});
  return out;
}

TEST(Rpcbind, KnowsWhatIsServedUntilTheEnd) {
  proves("R8166-5-3");
  proves("R1833-2-1");
  FakeRpcbind rpcbind;
  {
    const auto registration = RpcbindRegistration::make(services(), rpcbind.path);
    ASSERT_TRUE(registration) << registration.error().message();
    const Table expected{{{100'005, 3, "tcp"}, "0.0.0.0.78.80"},    {{100'005, 3, "udp"}, "0.0.0.0.78.80"},
                         {{100'005, 3, "tcp6"}, "::.78.80"},        {{100'005, 3, "udp6"}, "::.78.80"},
                         {{100'003, 3, "rdma"}, "192.0.2.1.78.81"}, {{100'003, 3, "rdma6"}, "fd00:db8::1.78.81"}};
    EXPECT_EQ(rpcbind.table(), expected);
  }
  EXPECT_TRUE(rpcbind.table().empty());
}

TEST(Rpcbind, WhatAKilledProcessLeftIsTakenOver) {
  FakeRpcbind rpcbind;
  for (const Service& service : services()) rpcbind.put(service);
  EXPECT_TRUE(RpcbindRegistration::make(services(), rpcbind.path));
  EXPECT_TRUE(rpcbind.table().empty());
}

TEST(Rpcbind, AnothersEntryIsLeftAloneAndOursAreGone) {
  FakeRpcbind rpcbind;
  rpcbind.put({100'005, 3, "tcp6", "::.3.4"});
  const auto registration = RpcbindRegistration::make(services(), rpcbind.path);
  ASSERT_FALSE(registration);
  EXPECT_NE(registration.error().message().find("tcp6 at ::.3.4 already"), std::string::npos)
      << registration.error().message();
  EXPECT_EQ(rpcbind.table(), (Table{{{100'005, 3, "tcp6"}, "::.3.4"}}));
}

TEST(Rpcbind, IsAskedForWhereItIsNot) {
  const auto registration = RpcbindRegistration::make(services(), "/tmp/rodeo-no-such-socket");
  ASSERT_FALSE(registration);
  EXPECT_NE(registration.error().message().find("start it"), std::string::npos) << registration.error().message();
}

}  // namespace
}  // namespace rodeo::nfs
