/* Clients of the metrics endpoint that hang up, in a program where SIGPIPE ends the process. Compiled and run by
 * tests/c_program.rs. */

#include <vrampool.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

/* So many that an answer does not fit in the buffers of a connection. */
#define POOLS 200
#define CLIENTS 100

static int ask(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(client >= 0 && connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    CHECK(send(client, request, sizeof request - 1, 0) == (ssize_t)(sizeof request - 1));
    return client;
}

int main(void) {
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    for (int i = 0; i < POOLS; i++) {
        vrampool_pool pool;
        char options[64];
        snprintf(options, sizeof options, "device=host;host_capacity=1MiB;name=pool%d", i);
        CHECK(vrampool_create(options, &pool) == VRAMPOOL_OK);
    }
    char *served_at;
    CHECK(vrampool_start_metrics_at("127.0.0.1:0", &served_at) == VRAMPOOL_OK);
    uint16_t port = (uint16_t)atoi(strrchr(served_at, ':') + 1);
    CHECK(vrampool_string_free(served_at) == VRAMPOOL_OK);

    static char text[1 << 16];
    for (int i = 0; i < CLIENTS; i++) {
        int client = ask(port);
        /* Some have seen the begin of the answer, and some reset the connection. */
        if (i % 2 == 0) {
            CHECK(recv(client, text, 1, 0) == 1);
        }
        struct linger reset = {.l_onoff = i / 2 % 2, .l_linger = 0};
        CHECK(setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0 && close(client) == 0);
    }

    /* One that reads to the end gets all of it. */
    int client = ask(port);
    size_t length = 0;
    ssize_t part;
    while ((part = recv(client, text, sizeof text, 0)) > 0) {
        length += (size_t)part;
    }
    CHECK(part == 0 && length > POOLS * 1000 && close(client) == 0);
    CHECK(vrampool_stop_metrics() == VRAMPOOL_OK);
    puts("all is well");
    return 0;
}
