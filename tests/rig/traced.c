/* A process whose leader has ended, with COUNT threads that have ended and are traced, and one that lives.

   Usage: traced COUNT. It waits for a line on stdin, makes the process as a child, and prints the child's PID once all
   is so. A thread that is traced stays as a zombie until its tracer, here the parent, has waited for it (ptrace(2)); this
   one never does. The thread that lives is the youngest, so that it comes last in /proc. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int go[2], ready[2];

static void tell(int sign) {
    pid_t tid = sign * (pid_t)syscall(SYS_gettid);
    if (write(ready[1], &tid, sizeof tid) != sizeof tid)
        _exit(1);
}

static void *end_when_told(void *unused) {
    char byte;
    tell(1);
    (void)!read(go[0], &byte, 1); /* the end of the pipe: the tracer has closed it */
    return unused;
}

static void *live(void *unused) {
    tell(-1); /* not to be told by its number: those begin at 300 again once pid_max is reached */
    for (;;)
        pause();
    return unused;
}

static void target(int count) {
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32768);
    prctl(PR_SET_PDEATHSIG, 9);
    close(go[1]);
    for (int i = 0; i <= count; i++)
        if (pthread_create(&thread, &small, i < count ? end_when_told : live, NULL) != 0)
            _exit(1);
    syscall(SYS_exit, 0); /* the leader alone */
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 0;
    pid_t *tids = calloc((size_t)count + 1, sizeof *tids);
    char line[64];
    siginfo_t ended;
    alarm(60); /* the reader of its output waits without a limit */
    if (tids == NULL || pipe(go) != 0 || pipe(ready) != 0 || fgets(line, sizeof line, stdin) == NULL)
        return 1;
    pid_t child = fork();
    if (child == 0)
        target(count);
    close(go[0]);
    for (int i = 0; i <= count; i++)
        if (read(ready[0], &tids[i], sizeof *tids) != sizeof *tids)
            return 1;
    for (int i = 0; i <= count; i++)
        if (tids[i] > 0 && ptrace(PTRACE_SEIZE, tids[i], NULL, NULL) != 0)
            return 1;
    close(go[1]);
    for (int i = 0; i <= count; i++)
        if (tids[i] > 0 && waitid(P_PID, (id_t)tids[i], &ended, WEXITED | WNOWAIT | __WALL) != 0)
            return 1;
    printf("%d\n", child);
    fflush(stdout);
    alarm(0);
    for (;;)
        pause();
}
