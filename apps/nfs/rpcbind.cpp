// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/rpcbind.h"

#include <rpc/rpc.h>
#include <rpc/rpcb_prot.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "apps/nfs/nfs_server.h"
#include "pools/errno_text.h"

namespace rodeo::nfs {
namespace {

constexpr const char* kWhere = "rpcbind";
constexpr timeval kPatience{5, 0};
constexpr u_int kMaxUniversalAddress = 256;

bool_t encode_service(XDR* xdr, rpcb* service) { return xdr_rpcb(xdr, service); }
bool_t decode_truth(XDR* xdr, bool_t* truth) { return xdr_bool(xdr, truth); }
bool_t decode_address(XDR* xdr, char** text) { return xdr_string(xdr, text, kMaxUniversalAddress); }

/// A connection to rpcbind. Over a Unix socket, which tells it who we are: only that user may unset what he set.
class Client {
 public:
  static Result<Client> connect(const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    if (path.size() >= sizeof name.sun_path) return fail(kWhere, path + " is too long for a socket");
    std::memcpy(name.sun_path, path.c_str(), path.size());
    int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0 || ::connect(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
      const std::string why = errno_text();
      if (socket >= 0) ::close(socket);
      return fail(kWhere, "nobody answers on " + path + ": " + why,
                  "start it (package rpcbind), or leave --rpcbind out and let clients say the ports");
    }
    netbuf address{sizeof name, sizeof name, &name};
    CLIENT* made = clnt_vc_create(socket, &address, RPCBPROG, RPCBVERS4, 0, 0);
    if (made == nullptr) {
      ::close(socket);
      return fail(kWhere, clnt_spcreateerror("libtirpc"));
    }
    bool_t on = TRUE;
    clnt_control(made, CLSET_FD_CLOSE, reinterpret_cast<char*>(&on));
    return Client(made);
  }
  Client(Client&& other) noexcept : client_(std::exchange(other.client_, nullptr)) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  Client& operator=(Client&&) = delete;
  ~Client() {
    if (client_ != nullptr) clnt_destroy(client_);
  }

  /// What SET or UNSET says; nothing when no answer came.
  std::optional<bool> change(rpcproc_t procedure, const Service& service) {
    bool_t truth = FALSE;
    if (!call(procedure, service, reinterpret_cast<xdrproc_t>(&decode_truth), &truth)) return std::nullopt;
    return truth != FALSE;
  }
  /// What is registered there; empty when nothing is.
  std::string look_up(const Service& service) {
    char* text = nullptr;
    const auto decode = reinterpret_cast<xdrproc_t>(&decode_address);
    if (!call(RPCBPROC_GETADDR, service, decode, &text) || text == nullptr) return {};
    std::string found = text;
    clnt_freeres(client_, decode, reinterpret_cast<caddr_t>(&text));
    return found;
  }

 private:
  explicit Client(CLIENT* client) : client_(client) {}
  bool call(rpcproc_t procedure, const Service& service, xdrproc_t decode, void* result) {
    char owner[] = "";  // rpcbind puts in who it is that asks
    rpcb wire{service.program, service.version, const_cast<char*>(service.netid.c_str()),
              const_cast<char*>(service.address.c_str()), owner};
    return clnt_call(client_, procedure, reinterpret_cast<xdrproc_t>(&encode_service), reinterpret_cast<caddr_t>(&wire),
                     decode, static_cast<caddr_t>(result), kPatience) == RPC_SUCCESS;
  }

  CLIENT* client_;
};

std::string name_of(const Service& service) {
  return "program " + std::to_string(service.program) + " version " + std::to_string(service.version) + " on " +
         service.netid;
}

}  // namespace

std::vector<Service> mount_services(std::uint16_t port) {
  const std::string end = "." + std::to_string(port >> 8U) + "." + std::to_string(port & 0xffU);
  std::vector<Service> out;
  for (const auto& [netid, any] : {std::pair("tcp", "0.0.0.0"), {"udp", "0.0.0.0"}, {"tcp6", "::"}, {"udp6", "::"}}) {
    out.push_back({kMountProgram, kMountVersion, netid, any + end});
  }
  return out;
}

Result<std::unique_ptr<RpcbindRegistration>> RpcbindRegistration::make(std::vector<Service> services,
                                                                       std::string socket) {
  auto client = Client::connect(socket);
  if (!client) return tl::unexpected(client.error());
  std::unique_ptr<RpcbindRegistration> made(new RpcbindRegistration({}, std::move(socket)));
  for (Service& service : services) {
    const auto set = client->change(RPCBPROC_SET, service);
    if (!set) return fail(kWhere, "it does not answer", "is it rpcbind that listens on " + made->socket_ + "?");
    if (!*set) {
      const std::string there = client->look_up(service);
      if (there != service.address) {
        return fail(kWhere,
                    there.empty() ? "it refuses " + name_of(service) + " at " + service.address
                                  : "it has " + name_of(service) + " at " + there + " already",
                    "stop whoever serves that, or remove the entry as root: rpcinfo -d " +
                        std::to_string(service.program) + ' ' + std::to_string(service.version));
      }
    }
    made->services_.push_back(std::move(service));
  }
  return made;
}

RpcbindRegistration::~RpcbindRegistration() {
  auto client = Client::connect(socket_);
  if (!client) return;  // with it went what it knew
  for (const Service& service : services_) (void)client->change(RPCBPROC_UNSET, service);
}

}  // namespace rodeo::nfs
