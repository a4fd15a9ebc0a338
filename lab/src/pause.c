/* Keeps a Pod's namespaces: waits for signals, reaps what it inherits as process 1, ends when asked. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	sigset_t awaited;
	int received;

	/* Blocked and fetched one by one: there is no handler, so nothing can run at an unexpected moment. */
	sigemptyset(&awaited);
	sigaddset(&awaited, SIGCHLD);
	sigaddset(&awaited, SIGINT);
	sigaddset(&awaited, SIGTERM);
	sigprocmask(SIG_BLOCK, &awaited, NULL);
	while (sigwait(&awaited, &received) == 0) {
		if (received != SIGCHLD)
			return 0;
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
	return 1;
}
