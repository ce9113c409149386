// Package exechandler provides a handler that runs one program per attempt. It exists
// on Linux, on amd64 and arm64.
//
// The payload is JSON:
//
//	{
//	  "argv": ["/usr/local/bin/report", "--day", "today"],
//	  "env": {"REGION": "eu", "API_KEY": "${secret:report-key}"},
//	  "dir": "/var/lib/reports",  // Options.Dir or a directory below; default Options.Dir
//	  "stdin": "text"
//	}
//
// Variables and stdin may refer to secrets (see package secrets) whose destinations include the
// program of argv[0]. Processes of the same user can read the variables of a program in /proc,
// so stdin is the safer way.
//
// The program gets PATH, HOME, LANG, the variables of env that Options.Env allows, and
// FERMATA_RUN, FERMATA_NAMESPACE, FERMATA_JOB, FERMATA_ATTEMPT, FERMATA_TOKEN and
// FERMATA_CORRELATION_ID; in a traced run also TRACEPARENT and TRACESTATE. An exit status other
// than 0 fails the attempt. A variable or a directory that is not allowed fails the run at once,
// because another attempt would not be allowed either. A program that SIGTERM has ended has not
// done its work, whatever its status: the attempt ends as cancelled, timed out or cut off. The
// output is JSON with exit_code, signal, duration_ms, bytes, and the end of stdout and stderr.
//
// Each program has a supervisor, a process that runs this executable again (see
// internal/launch) as this process's user. Programs should run as another user (Options.User),
// because processes that can kill the supervisor can escape it.
//
// Invariants:
//
//  1. Only programs that Options.Allow names by their absolute path run, and only the files
//     that these names led to when the worker started, with links resolved. The file and every
//     directory and link on the way belong to root or the worker's user and cannot be written
//     by others; this is checked before each start. A missing program may be installed later if
//     no other user can create it. There is no shell: arguments reach the program unchanged.
//     Allowing a shell or an interpreter allows everything.
//  2. Programs inherit nothing of the worker's environment, and a payload sets only the
//     variables that Options.Env allows. No option allows the worker's variables (PATH, HOME,
//     ...) or those that control the dynamic loader. A payload chooses the working directory
//     only below Options.Dir.
//  3. A program is not root unless Options.AllowRoot is set, cannot gain privileges
//     (no_new_privs), and is under Options.Limits from its first instruction on.
//  4. The program leads its own session and process group. At the end of the attempt's time the
//     group gets SIGTERM, and everything gets SIGKILL after Options.Grace. When the program or
//     this process has ended, all descendants of the program are killed, also daemons with
//     their own session and environment, because they become children of the supervisor. If
//     this process may create control groups, each attempt has one, which is killed as well. If
//     the supervisor is killed, the kernel kills the program; its descendants are killed by this
//     process with a control group or with Options.ReapOrphans, and survive without both. Children that
//     this process had before the first handler was made are spared.
//  5. The handler returns when no process of the attempt is left. Processes that cannot be
//     killed within ten seconds fail the attempt, and the supervisor continues.
//  6. No error, no output and no argument contains a secret.
package exechandler
