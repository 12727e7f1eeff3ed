// SPDX-License-Identifier: Apache-2.0
// What rivals have: ONC RPC NULL calls over loopback TCP with libtirpc. A server process on one core, a client on
// another, AUTH_SYS, TCP_NODELAY, one call after the other, as clnt_call offers. Prints one JSON object.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rpc/rpc.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "bench/flags.h"
#include "bench/pinning.h"

namespace {

constexpr rpcprog_t kProgram = 0x20524f45;
constexpr rpcvers_t kVersion = 1;

/// xdr_void, in the type that libtirpc calls it by.
bool_t no_data(XDR*, ...) { return TRUE; }

void serve(svc_req* request, SVCXPRT* transport) {
  if (request->rq_proc == NULLPROC) {
    svc_sendreply(transport, no_data, nullptr);
  } else {
    svcerr_noproc(transport);
  }
}

int complain(const char* what) {
  std::fprintf(stderr, "tcp_null: %s\n", what);
  return 1;
}

/// A TCP socket without Nagle's delay; accepted connections inherit that.
int tcp_socket() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
  const int on = 1;
  if (fd >= 0) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

[[noreturn]] void run_server(int listener, int core) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!rodeo::bench::pin_to_core(core)) std::_Exit(complain("the server's core is not to be had"));
  SVCXPRT* transport = svctcp_create(listener, 0, 0);
  // Protocol 0: nobody needs to find us through rpcbind.
  if (transport == nullptr || !svc_register(transport, kProgram, kVersion, serve, 0)) {
    std::_Exit(complain("libtirpc could not make a server"));
  }
  svc_run();
  std::_Exit(1);
}

int run_client(sockaddr_in address, int core, double seconds) {
  if (!rodeo::bench::pin_to_core(core)) return complain("the client's core is not to be had");
  int fd = tcp_socket();
  if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return complain("no connection to the server");
  }
  CLIENT* client = clnttcp_create(&address, kProgram, kVersion, &fd, 0, 0);
  if (client == nullptr) return complain("libtirpc could not make a client");
  auth_destroy(client->cl_auth);
  client->cl_auth = authunix_create_default();

  using Clock = std::chrono::steady_clock;
  const timeval patience{5, 0};
  std::uint64_t calls = 0;
  Clock::time_point start = Clock::now();
  const auto warm = start + std::chrono::milliseconds(200);
  const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  bool measuring = false;
  for (;;) {
    if (clnt_call(client, NULLPROC, no_data, nullptr, no_data, nullptr, patience) != RPC_SUCCESS) {
      clnt_perror(client, "tcp_null: a call failed");
      return 1;
    }
    const auto now = Clock::now();
    if (!measuring) {
      measuring = now >= warm;
      if (measuring) start = now;
      continue;
    }
    ++calls;
    if (now - start >= length) {
      const double took = std::chrono::duration<double>(now - start).count();
      std::printf("{\"calls_per_second\": %.1f, \"calls\": %llu, \"seconds\": %.3f}\n",
                  static_cast<double>(calls) / took, static_cast<unsigned long long>(calls), took);
      break;
    }
  }
  clnt_destroy(client);
  ::close(fd);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 2.0;
  double server_core = 0;
  double client_core = 1;
  if (const auto status = rodeo::bench::parse_flags(argc, argv,
                                                    {{"--seconds", &seconds, 0.01, 60},
                                                     {"--server-core", &server_core, 0, CPU_SETSIZE - 1},
                                                     {"--client-core", &client_core, 0, CPU_SETSIZE - 1}})) {
    return *status;
  }
  const int listener = tcp_socket();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      ::listen(listener, 8) != 0 || ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return complain("no loopback TCP here");
  }
  const pid_t server = ::fork();
  if (server < 0) return complain("no second process to be had");
  if (server == 0) run_server(listener, static_cast<int>(server_core));
  ::close(listener);
  const int status = run_client(address, static_cast<int>(client_core), seconds);
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  return status;
}
