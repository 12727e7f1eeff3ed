// SPDX-License-Identifier: Apache-2.0
// Runs on: its own thread, save for start and stop.
#include "apps/nfs/mount_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rpc/rpc.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/nfs/path_walk.h"

namespace rodeo::nfs {
namespace {

constexpr u_int kMaxDirpath = 1024;
constexpr std::size_t kMaxMounts = 4096;  // of the list that DUMP gives, which nothing depends on

enum MountProc3 : rpcproc_t { kNull = 0, kMnt = 1, kDump = 2, kUmnt = 3, kUmntall = 4, kExport = 5 };

struct Mounted {
  std::string client;
  std::string path;
  bool operator==(const Mounted&) const = default;
};

struct MntResult {
  std::uint32_t status = 0;  // mountstat3 has the numbers of nfsstat3
  FileHandle handle;
};

/// What the reply's encoder sees.
struct Lists {
  const std::vector<Export>* exports = nullptr;
  const std::vector<Mounted>* mounted = nullptr;
};

bool put_u32(XDR* xdr, std::uint32_t value) { return xdr_uint32_t(xdr, &value) != 0; }
bool put_string(XDR* xdr, const std::string& text) {
  char* start = const_cast<char*>(text.c_str());
  return xdr_string(xdr, &start, kMaxDirpath) != 0;
}

bool_t encode_mnt(XDR* xdr, void* data) {
  auto& result = *static_cast<MntResult*>(data);
  if (!put_u32(xdr, result.status)) return FALSE;
  if (result.status != 0) return TRUE;
  char* octets = reinterpret_cast<char*>(result.handle.octets.data());
  u_int size = result.handle.size;
  return xdr_bytes(xdr, &octets, &size, kMaxHandleBytes) != 0 && put_u32(xdr, 1) && put_u32(xdr, AUTH_SYS) ? TRUE
                                                                                                           : FALSE;
}

bool_t encode_dump(XDR* xdr, void* data) {
  for (const Mounted& one : *static_cast<Lists*>(data)->mounted) {
    if (!put_u32(xdr, 1) || !put_string(xdr, one.client) || !put_string(xdr, one.path)) return FALSE;
  }
  return put_u32(xdr, 0) ? TRUE : FALSE;
}

bool_t encode_exports(XDR* xdr, void* data) {
  for (const Export& exported : *static_cast<Lists*>(data)->exports) {
    if (!put_u32(xdr, 1) || !put_string(xdr, exported.path)) return FALSE;
    for (const AddressRange& range : exported.options.clients) {
      if (!put_u32(xdr, 1) || !put_string(xdr, range.text())) return FALSE;
    }
    if (!put_u32(xdr, 0)) return FALSE;
  }
  return put_u32(xdr, 0) ? TRUE : FALSE;
}

/// dirpath, which libtirpc allocates.
class Dirpath {
 public:
  explicit Dirpath(SVCXPRT* transport) : transport_(transport) {
    ok_ = svc_getargs(transport, reinterpret_cast<xdrproc_t>(&xdr), reinterpret_cast<caddr_t>(&text_)) != 0;
  }
  Dirpath(const Dirpath&) = delete;
  Dirpath& operator=(const Dirpath&) = delete;
  ~Dirpath() { svc_freeargs(transport_, reinterpret_cast<xdrproc_t>(&xdr), reinterpret_cast<caddr_t>(&text_)); }
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::string_view view() const noexcept { return text_; }

 private:
  static bool_t xdr(XDR* stream, char** text) { return xdr_string(stream, text, kMaxDirpath); }
  SVCXPRT* transport_;
  char* text_ = nullptr;
  bool ok_ = false;
};

void reply(SVCXPRT* transport, bool_t (*encode)(XDR*, void*), void* data) {
  if (!svc_sendreply(transport, reinterpret_cast<xdrproc_t>(encode), static_cast<caddr_t>(data))) {
    svcerr_systemerr(transport);
  }
}
void reply_void(SVCXPRT* transport) {
  svc_sendreply(transport, reinterpret_cast<xdrproc_t>(reinterpret_cast<void*>(&xdr_void)), nullptr);
}

std::string name_of(const sockaddr& address) {
  if (address.sa_family != AF_INET6) return "?";  // the sockets are of that family
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6);
  std::array<char, 64> text{};
  const void* const octets = mapped ? &v6.s6_addr[12] : &v6.s6_addr[0];
  return ::inet_ntop(mapped ? AF_INET : AF_INET6, octets, text.data(), text.size()) == nullptr ? "?" : text.data();
}

class LibtirpcMountServer final : public MountServer {
 public:
  explicit LibtirpcMountServer(const NfsServer& server) : server_(server) {}
  ~LibtirpcMountServer() override {
    if (thread_.joinable()) {
      const std::uint64_t one = 1;
      (void)!::write(stop_fd_, &one, sizeof one);
      thread_.join();
    }
    svc_unreg(kMountProgram, kMountVersion);
    for (SVCXPRT* transport : transports_) svc_destroy(transport);
    if (stop_fd_ >= 0) ::close(stop_fd_);
    present_ = nullptr;
  }

  [[nodiscard]] std::uint16_t port() const noexcept override { return port_; }

  Result<void> open(const MountServerOptions& options) {
    if (present_ != nullptr) return fail("MOUNT", "this process serves it already");
    present_ = this;
    stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
    port_ = options.port;
    for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
      auto socket = bound_socket(type);
      if (!socket) return tl::unexpected(socket.error());
      SVCXPRT* transport = type == SOCK_STREAM ? svc_vc_create(*socket, 0, 0) : svc_dg_create(*socket, 0, 0);
      if (transport == nullptr) {
        ::close(*socket);
        return fail("MOUNT", "libtirpc cannot serve the socket");
      }
      transports_.push_back(transport);
      if (!svc_reg(transport, kMountProgram, kMountVersion, &dispatch, nullptr)) {
        return fail("MOUNT", "libtirpc does not take the program");
      }
    }
    thread_ = std::thread([this] { run(); });
    return {};
  }

 private:
  /// Of both families; TCP's listens. The first decides the port where any will do.
  Result<int> bound_socket(int type) {
    const int socket = ::socket(AF_INET6, type | SOCK_CLOEXEC, 0);
    const int off = 0;
    const int on = 1;
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port_);
    socklen_t size = sizeof address;
    if (socket < 0 || ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        (type == SOCK_STREAM && ::listen(socket, SOMAXCONN) != 0) ||
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      const std::string why = std::strerror(errno);
      if (socket >= 0) ::close(socket);
      return fail("MOUNT", "port " + std::to_string(port_) + " cannot be served: " + why,
                  "choose another with --mount-port");
    }
    port_ = ntohs(address.sin6_port);
    return socket;
  }

  /// svc_run(), but for its end.
  void run() {
    std::vector<pollfd> fds;
    for (;;) {
      fds.assign(svc_pollfd, svc_pollfd + svc_max_pollfd);
      fds.push_back({stop_fd_, POLLIN, 0});
      const int ready = ::poll(fds.data(), fds.size(), -1);
      if (ready < 0 && errno != EINTR) return;
      if (fds.back().revents != 0) return;
      fds.pop_back();
      if (ready > 0) svc_getreq_poll(fds.data(), ready);
    }
  }

  static void dispatch(svc_req* request, SVCXPRT* transport) { present_->serve(*request, transport); }

  void serve(const svc_req& request, SVCXPRT* transport) {
    const auto& client = *static_cast<const sockaddr*>(svc_getrpccaller(transport)->buf);
    Lists lists{&server_.exports(), &mounted_};
    switch (request.rq_proc) {
      case kNull:
        return reply_void(transport);
      case kMnt:
        return mnt(transport, client);
      case kDump:
        return reply(transport, &encode_dump, &lists);
      case kUmnt: {
        const Dirpath path(transport);
        if (!path.ok()) return svcerr_decode(transport);
        std::erase(mounted_, Mounted{name_of(client), std::string(path.view())});
        return reply_void(transport);
      }
      case kUmntall:
        std::erase_if(mounted_, [&](const Mounted& one) { return one.client == name_of(client); });
        return reply_void(transport);
      case kExport:
        return reply(transport, &encode_exports, &lists);
      default:
        return svcerr_noproc(transport);
    }
  }

  void mnt(SVCXPRT* transport, const sockaddr& client) {
    const Dirpath path(transport);
    if (!path.ok()) return svcerr_decode(transport);
    const WalkedPath found = walk_path(server_.exports(), path.view(), Peer::at(client));
    MntResult result;
    result.status = static_cast<std::uint32_t>(found.status);
    if (found.status == NfsStat3::kOk) {
      result.handle = NfsServer::handle_on_wire(*found.exported, found.object);
      Mounted one{name_of(client), std::string(path.view())};
      if (mounted_.size() < kMaxMounts && std::ranges::find(mounted_, one) == mounted_.end()) {
        mounted_.push_back(std::move(one));
      }
    }
    reply(transport, &encode_mnt, &result);
  }

  static inline LibtirpcMountServer* present_ = nullptr;

  const NfsServer& server_;
  std::vector<SVCXPRT*> transports_;
  std::vector<Mounted> mounted_;
  std::uint16_t port_ = 0;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<MountServer>> MountServer::start(const NfsServer& server, const MountServerOptions& options) {
  auto self = std::make_unique<LibtirpcMountServer>(server);
  if (auto opened = self->open(options); !opened) return tl::unexpected(opened.error());
  return self;
}

}  // namespace rodeo::nfs
