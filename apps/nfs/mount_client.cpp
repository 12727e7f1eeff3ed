// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/mount_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "apps/nfs/nfs_server.h"
#include "pools/errno_text.h"

namespace rodeo::nfs {
namespace {

constexpr std::uint16_t kUsualMountPort = 20'048;
constexpr u_int kMaxDirpath = 1024;
constexpr u_int kMaxFlavors = 64;
constexpr std::size_t kMaxExports = 65'536;

enum MountProc3 : rpcproc_t { kMnt = 1, kUmnt = 3, kExport = 5 };

struct MntResult {
  std::uint32_t status = 0;
  FileHandle handle;
  std::vector<std::uint32_t> flavors{};
};

bool_t put_path(XDR* xdr, void* path) {
  char* text = const_cast<char*>(static_cast<const std::string*>(path)->c_str());
  return xdr_string(xdr, &text, kMaxDirpath);
}

/// XDR_FREE comes, too, for what an encoder or decoder of libtirpc's would have allocated.
bool_t get_mnt(XDR* xdr, void* data) {
  if (xdr->x_op != XDR_DECODE) return TRUE;
  auto& result = *static_cast<MntResult*>(data);
  if (!xdr_uint32_t(xdr, &result.status)) return FALSE;
  if (result.status != 0) return TRUE;
  u_int size = 0;
  char* octets = reinterpret_cast<char*>(result.handle.octets.data());
  if (!xdr_bytes(xdr, &octets, &size, kMaxHandleBytes)) return FALSE;
  result.handle.size = size;
  std::uint32_t flavors = 0;
  if (!xdr_uint32_t(xdr, &flavors) || flavors > kMaxFlavors) return FALSE;
  result.flavors.resize(flavors);
  return std::ranges::all_of(result.flavors, [&](std::uint32_t& flavor) { return xdr_uint32_t(xdr, &flavor) != 0; });
}

bool get_text(XDR* xdr, std::string& text) {
  std::array<char, kMaxDirpath + 1> octets{};
  char* start = octets.data();
  if (!xdr_string(xdr, &start, kMaxDirpath)) return false;
  text = start;
  return true;
}

bool_t get_exports(XDR* xdr, void* data) {
  if (xdr->x_op != XDR_DECODE) return TRUE;
  auto& paths = *static_cast<std::vector<std::string>*>(data);
  paths.clear();
  std::uint32_t more = 0;
  std::string text;
  while (xdr_uint32_t(xdr, &more)) {
    if (more == 0) return TRUE;
    if (paths.size() == kMaxExports || !get_text(xdr, text)) return FALSE;
    paths.push_back(text);
    do {  // groups that may mount it: the server will say whether we are among them
      if (!xdr_uint32_t(xdr, &more) || (more != 0 && !get_text(xdr, text))) return FALSE;
    } while (more != 0);
  }
  return FALSE;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};

class LibtirpcMountClient final : public MountClient {
 public:
  LibtirpcMountClient(CLIENT* client, timeval patience) : client_(client), patience_(patience) {}
  ~LibtirpcMountClient() override {
    auth_destroy(client_->cl_auth);
    clnt_destroy(client_);
  }

  NfsResult<std::vector<std::string>> exports() override {
    std::vector<std::string> paths;
    if (auto done = call(kExport, reinterpret_cast<xdrproc_t>(reinterpret_cast<void*>(&xdr_void)), nullptr,
                         &get_exports, &paths, "EXPORT");
        !done) {
      return tl::unexpected(done.error());
    }
    return paths;
  }

  NfsResult<FileHandle> mount(const std::string& path) override {
    if (path.size() > kMaxDirpath) return tl::unexpected(answered("MNT", NfsStat3::kNametoolong));
    MntResult result;
    std::string argument = path;
    const auto put = reinterpret_cast<xdrproc_t>(&put_path);
    if (auto done = call(kMnt, put, &argument, &get_mnt, &result, "MNT"); !done) return tl::unexpected(done.error());
    if (result.status != 0) return tl::unexpected(answered("MNT", static_cast<NfsStat3>(result.status)));
    // A handle outlives its mount. Nobody is to find us in the list when we have long gone.
    (void)call(
        kUmnt, put, &argument, [](XDR*, void*) { return TRUE; }, nullptr, "UMNT");
    if (!result.flavors.empty() && std::ranges::find(result.flavors, std::uint32_t{AUTH_SYS}) == result.flavors.end()) {
      return give_up("the export wants stronger authentication than AUTH_SYS", "have it exported with sec=sys");
    }
    return result.handle;
  }

 private:
  NfsResult<void> call(rpcproc_t procedure, xdrproc_t put, void* argument, bool_t (*get)(XDR*, void*), void* result,
                       const char* name) {
    const clnt_stat status = clnt_call(client_, procedure, put, static_cast<caddr_t>(argument),
                                       reinterpret_cast<xdrproc_t>(get), static_cast<caddr_t>(result), patience_);
    if (status == RPC_SUCCESS) return {};
    return give_up(std::string("MOUNT's ") + name + ": " + clnt_sperrno(status),
                   "is it MOUNT version 3 that listens there? --mount-port names its port");
  }

  CLIENT* client_;
  timeval patience_;
};

std::unique_ptr<addrinfo, FreeAddresses> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return nullptr;
  return std::unique_ptr<addrinfo, FreeAddresses>(list);
}

/// 0: nobody says.
std::uint16_t port_by_rpcbind(const std::string& host, int family) {
  netconfig* transport = getnetconfigent(family == AF_INET6 ? "tcp6" : "tcp");
  if (transport == nullptr) return 0;
  sockaddr_storage found{};
  netbuf address{sizeof found, sizeof found, &found};
  const bool known = rpcb_getaddr(kMountProgram, kMountVersion, transport, &address, host.c_str()) != 0;
  freenetconfigent(transport);
  if (!known) return 0;
  return ntohs(found.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(found).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(found).sin_port);
}

void set_port(sockaddr& address, std::uint16_t port) {
  if (address.sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  }
}

/// A connected socket, or -1 and errno. From a reserved port where we may: servers tend to ask for that.
int connected(const addrinfo& to, timeval patience) {
  const int socket = ::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
  if (socket < 0) return -1;
  (void)bindresvport_sa(socket, nullptr);
  (void)::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);  // bounds connect(), too
  if (::connect(socket, to.ai_addr, to.ai_addrlen) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error == EINPROGRESS ? ETIMEDOUT : error;
  return -1;
}

}  // namespace

NfsResult<std::unique_ptr<MountClient>> MountClient::connect(const std::string& host, std::uint16_t port,
                                                             const Caller& caller, std::chrono::seconds patience) {
  const auto list = addresses_of(host);
  if (list == nullptr) return give_up("no address is known of host " + host, "check its name");
  const timeval limit{patience.count(), 0};
  std::string why = "it has no address";
  for (const addrinfo* to = list.get(); to != nullptr; to = to->ai_next) {
    if (to->ai_family != AF_INET && to->ai_family != AF_INET6) continue;
    std::uint16_t tried = port != 0 ? port : port_by_rpcbind(host, to->ai_family);
    if (tried == 0) tried = kUsualMountPort;
    set_port(*to->ai_addr, tried);
    const int socket = connected(*to, limit);
    if (socket < 0) {
      why = "port " + std::to_string(tried) + ": " + errno_text();
      continue;
    }
    netbuf address{to->ai_addrlen, to->ai_addrlen, to->ai_addr};
    CLIENT* client = clnt_vc_create(socket, &address, kMountProgram, kMountVersion, 0, 0);
    if (client == nullptr) {
      ::close(socket);
      return give_up("libtirpc cannot use the connection to MOUNT");
    }
    clnt_control(client, CLSET_FD_CLOSE, nullptr);
    std::string machine = caller.machine_name;
    std::vector<gid_t> groups(caller.gids.begin(), caller.gids.end());
    client->cl_auth = authunix_create(machine.data(), caller.uid, caller.gid,
                                      static_cast<int>(std::min(groups.size(), kMaxAuthSysGids)), groups.data());
    return std::make_unique<LibtirpcMountClient>(client, limit);
  }
  return give_up("nobody serves MOUNT at " + host + ", " + why,
                 "NFSv3 needs it for its first handle; --mount-port names its port");
}

}  // namespace rodeo::nfs
