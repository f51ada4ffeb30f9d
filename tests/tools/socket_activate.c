/*
 * socket_activate.c - a stand-in for the service manager's socket units: makes the two listening sockets once, starts
 * a program with them, and starts it again whenever it has ended, with the same sockets (LISTEN_FDS protocol).
 *
 *   socket_activate FCGI_SOCKET STATUS_SOCKET PROGRAM [ARGUMENT...]
 * Writes "started PID" to standard output for each start. A program that ends with a status other than 0 is not
 * started again: the exit status is then the same. SIGTERM: SIGQUIT to the program, wait for it, end.
 * What the program leaves behind when it ends (workers that drain) is nobody's business here, as with
 * KillMode=process.
 */
#include "base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_FD 3
#define BACKLOG 4096

static volatile sig_atomic_t ending;
static volatile sig_atomic_t program_pid;

static void end(int number)
{
    (void)number;
    ending = 1;
    if (program_pid > 0)
        (void)kill((pid_t)program_pid, SIGQUIT);
}

/* Listen there, as descriptor number fd. */
static bool listen_at(const char *path, int fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int made = socket(AF_UNIX, SOCK_STREAM, 0);

    if (made < 0 || !text_copy(address.sun_path, sizeof address.sun_path, path))
        return false;
    (void)unlink(path);
    if (bind(made, (struct sockaddr *)&address, sizeof address) != 0 || listen(made, BACKLOG) != 0)
        return false;
    if (made == fd)
        return true;
    if (dup2(made, fd) != fd)
        return false;
    (void)close(made);
    return true;
}

static pid_t start(char **program)
{
    char digits[16];
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    (void)snprintf(digits, sizeof digits, "%d", (int)getpid());
    if (setenv("LISTEN_PID", digits, 1) == 0 && setenv("LISTEN_FDS", "2", 1) == 0 &&
        setenv("LISTEN_FDNAMES", "fcgi:status", 1) == 0)
        (void)execv(program[0], program);
    (void)fprintf(stderr, "socket_activate: %s: %s\n", program[0], strerror(errno));
    _exit(127);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = end};
    int status = 0;

    if (argc < 4 || !listen_at(argv[1], FIRST_FD) || !listen_at(argv[2], FIRST_FD + 1)) {
        (void)fprintf(stderr, "socket_activate: cannot listen: %s\n", strerror(errno));
        return 2;
    }
    (void)sigaction(SIGTERM, &action, NULL);
    while (!ending) {
        pid_t pid = start(argv + 3);

        if (pid < 0)
            return 1;
        program_pid = (sig_atomic_t)pid;
        (void)printf("started %d\n", (int)pid);
        (void)fflush(stdout);
        if (ending)
            (void)kill(pid, SIGQUIT);
        while (waitpid(pid, &status, 0) != pid)
            continue;
        program_pid = 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    return 0;
}
