// The front end of the MPS control program, as far as its manual describes it: passes stdin to the daemon of
// CUDA_MPS_PIPE_DIRECTORY, prints its answers, and exits with 1 if the daemon is not there or goes away.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(void) {
    char buffer[8192];
    ssize_t count;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    int daemon = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    int is_there = folder != NULL && chdir(folder) == 0; // a whole path may be longer than 108 bytes
    strcpy(address.sun_path, "control_privileged"); // which only root may use, as with driver 535
    if (is_there && connect(daemon, (struct sockaddr *)&address, sizeof address) != 0) {
        strcpy(address.sun_path, "control");
        is_there = connect(daemon, (struct sockaddr *)&address, sizeof address) == 0;
    }
    if (!is_there) {
        puts("Cannot find MPS control daemon process");
        return 1;
    }
    while ((count = read(STDIN_FILENO, buffer, sizeof buffer)) > 0)
        if (write(daemon, buffer, (size_t)count) != count) return 1;
    shutdown(daemon, SHUT_WR);
    while ((count = read(daemon, buffer, sizeof buffer)) > 0)
        if (write(STDOUT_FILENO, buffer, (size_t)count) != count) return 1;
    return count == 0 ? 0 : 1;
}
