/* What the containers of the tests run, and the sandbox too: PID 1 of its container, with arguments that say what to do.
 *
 *   term=exit|ignore|CODE   at SIGTERM: end with 0 (the default), go on, or end with CODE
 *   after=SECONDS           end by itself after so long, with the code of exit=CODE (0)
 *   children=COUNT          fork this many children, which sleep and treat SIGTERM alike
 *   respawn                 fork a new child for each that ends
 *   gpu=BYTES               the GPU memory of PID 1, child-gpu=BYTES of each child: read from outside (card.py)
 *
 * It says on stdout what it does and what it was sent, a line each.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int term = 0; /* -1: ignore */

static int number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 0 || value > 100000) {
        fprintf(stderr, "not a number: %s\n", text);
        exit(2);
    }
    return (int)value;
}

static void fork_child(const sigset_t *waited)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    if (pid > 0) {
        printf("child %d\n", (int)pid);
        return;
    }
    signal(SIGTERM, term < 0 ? SIG_IGN : SIG_DFL);
    sigprocmask(SIG_UNBLOCK, waited, NULL);
    for (;;)
        pause();
}

static int reap(void)
{
    int status, ended = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        ended++;
        if (WIFSIGNALED(status))
            printf("child %d ended by signal %d\n", (int)pid, WTERMSIG(status));
        else
            printf("child %d ended with %d\n", (int)pid, WEXITSTATUS(status));
    }
    return ended;
}

int main(int argc, char **argv)
{
    int after = 0, code = 0, children = 0, respawn = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        value = value ? value + 1 : "";
        if (!strncmp(argv[i], "term=", 5))
            term = !strcmp(value, "exit") ? 0 : !strcmp(value, "ignore") ? -1 : number(value);
        else if (!strncmp(argv[i], "after=", 6))
            after = number(value);
        else if (!strncmp(argv[i], "exit=", 5))
            code = number(value);
        else if (!strncmp(argv[i], "children=", 9))
            children = number(value);
        else if (!strcmp(argv[i], "respawn"))
            respawn = 1;
        else if (!strncmp(argv[i], "gpu=", 4) || !strncmp(argv[i], "child-gpu=", 10))
            continue;
        else {
            fprintf(stderr, "unknown argument: %s\n", argv[i]);
            return 2;
        }
    }
    sigset_t waited;
    sigemptyset(&waited);
    sigaddset(&waited, SIGTERM);
    sigaddset(&waited, SIGCHLD);
    sigaddset(&waited, SIGALRM);
    sigprocmask(SIG_BLOCK, &waited, NULL);
    printf("started as %d\n", (int)getpid());
    for (int i = 0; i < children; i++)
        fork_child(&waited);
    if (after)
        alarm((unsigned)after);
    for (;;) {
        fflush(stdout);
        int got = sigwaitinfo(&waited, NULL);
        if (got == SIGALRM)
            return code;
        if (got == SIGCHLD)
            for (int ended = reap(); respawn && ended > 0; ended--)
                fork_child(&waited);
        if (got == SIGTERM) {
            printf("SIGTERM\n");
            if (term >= 0) {
                fflush(stdout);
                return term;
            }
        }
    }
}
